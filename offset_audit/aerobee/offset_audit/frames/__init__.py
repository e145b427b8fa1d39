"""Tables with one meaning and two engines: Spark, and plain rows in this process.

A rule is written once, with `functions` for its expressions and the methods of `Frame`. What made
its tables also evaluates it.
"""
