"""A replicated journal: a master writes into one topic of its log, every replica applies it.

The library knows records, terms and images; its client knows what the entries mean. A client
provides a state that applies entries (`state.JournalState`) and its side of a master's term
(`state.JournalClient`). Nothing here polls: a journal continues when more of the log is confirmed,
when the role changes, and on request.
"""
