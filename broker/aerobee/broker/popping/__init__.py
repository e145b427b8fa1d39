"""POP in a running broker: what `pop` decides is carried out here.

pops        polls get messages, and clients' answers are recorded
bells       who waits, and who must check
moves       dead letters, and what holds too much
beginnings  where a group begins, and that nobody else consumes the queue
commits     what is finished becomes the committed offset
"""
