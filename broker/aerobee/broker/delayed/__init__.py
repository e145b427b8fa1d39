"""Delayed messages in a running broker: what `timers` decides is carried out here.

feeder    what is confirmed in the two system topics reaches the index and the levels' windows
journal   every replica knows what is done
mover     a master delivers what is due, and does what it is asked out of turn
hold      the log keeps what waits, and what waits moves on when the log must go
"""
