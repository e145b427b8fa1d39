"""Store folders at rest, or in use by a broker: found, divided into partitions, read, decoded.

For code that builds on it, without Spark:

- `folders.find_stores(paths, names)` gives `StoreFolder`s: who they are, and where.
- `plan.plan_log(stores, ...)`, `plan_queues`, `plan_index` give `Partition`s: lists of pieces of
  files, about equal in bytes.
- `log_chunks.log_chunks(piece)` reads a `LogPiece` and gives `LogChunk`s: a buffer, the columns of
  the whole records that begin in the piece, and where and why a run of records ended.
- `queue_chunks.queue_chunks(piece)` does the same with the entries of a queue's file.

Invariant: nothing is written; files may grow, roll or vanish meanwhile; however a log is divided,
the pieces together give the same records.
"""
