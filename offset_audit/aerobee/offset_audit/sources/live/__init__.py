"""Live brokers as Spark tables: everything that a run asks of them, from one reading of each.

`aerobee.offsets` without the option `table` gives every table of one reading in one frame: the
column `table` says which one a row belongs to; commits, queues, leases and minutes have columns in
it, and what only the other, small tables have is in column `rest` as JSON. So each broker is asked
once, and commits are read before ends. A run keeps the frame and takes the tables out of it:

    asked = (
        spark.read.format("aerobee.offsets")
        .option("nameservers", "127.0.0.1:8081")   # or .option("brokers", "host:port,host:port")
        .load()
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    tables = split_tables(asked)                   # of sources.live.columns
    tables["commits"]                              # with exactly the columns of tables.COMMITS

Columns, because Spark stores those compressed one by one, reads back only what a check needs, and
skips rows of other tables by the bounds of `table`. With `table=commits` and the like, a reading of
one table alone has the columns of that table.
"""
