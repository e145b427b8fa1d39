"""Transactions: half messages, how they end, and who is asked when nobody ends them.

`pending` knows what the two system topics say, on every replica; `ends` carries out on a master
what clients decide. What is stored is Apache's.
"""
