"""The offset audit: is every acknowledged message still there, and is each group's progress sane?

Reads brokers over gRPC and stores from files (`sources/`), reduces what grows with the data inside
the readers, judges the reductions (`checks/`), and writes what it found (`outputs/`).
"""
