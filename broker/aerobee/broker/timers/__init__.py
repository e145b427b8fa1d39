"""Delayed messages: which wait, which are due, and what happened to each.

The library is pure, except for the works of the index, which run on a thread: no event loop, no
clock of its own, no log. A driver feeds it and carries out its plans.
"""
