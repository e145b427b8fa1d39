"""RocketMQ's SQL92 filters: an expression over a message's properties, parsed and evaluated.

Pure: no wire, no store. `expression.py` is the front door; docs/filters.md has the language.
"""
