"""The offset audit: is every acknowledged message still there, and is each group's progress
plausible?

Reads brokers over gRPC and stores from files (`sources/`), reduces what grows with the data inside
the readers, judges the results (`checks/`), and writes the findings (`outputs/`).
"""
