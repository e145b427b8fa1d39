"""A replicated journal: what a master writes into one topic of its log, every replica applies.

The library knows records, terms and images; what the entries mean is its client's. A client brings
a state that applies entries (`state.JournalState`) and its side of a master's term
(`state.JournalClient`). Nothing here polls: a journal continues when the log is confirmed further,
when the role changes, and when it is asked.
"""
