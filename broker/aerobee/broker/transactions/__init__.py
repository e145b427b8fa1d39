"""Transactions: half messages, how they end, and who is asked when nobody ends them.

`pending` tracks the content of the two system topics, on every replica; `ends` carries out clients'
decisions on a master. The stored format is Apache's.
"""
