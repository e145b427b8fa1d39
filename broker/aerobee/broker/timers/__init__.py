"""Messages that arrive at a time: which wait, which are due, and what became of each.

The library is pure, except for the works of the index, which a thread carries out: no event loop,
no clock of its own, no log. A driver feeds it and carries out its plans.
"""
