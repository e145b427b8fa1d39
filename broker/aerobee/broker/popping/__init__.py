"""POP in a running broker: what `pop` decides is carried out here.

pops        polls get messages, and what clients say about them is written down
bells       who waits, and who is to look
moves       dead letters, and what holds too much
beginnings  where a group begins, and that nobody else consumes the queue
commits     what is finished becomes the committed offset
"""
