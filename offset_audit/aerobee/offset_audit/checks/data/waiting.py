"""How many messages wait for a time, for a transaction's end, or to come again, by their topic."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.tables import Tables


def waiting_by_topic(tables: Tables) -> DataFrame:
    """`cluster`, `topic` (that the messages are for), `kind`, `messages`, and `first_due_ms`.

    Replicas of one broker count once: of their stores the one that knows most.
    """
    of_store = (
        tables.pending.where(~F.coalesce("resolved", F.lit(False)))
        .groupBy("cluster", "broker_name", "broker_id", "real_topic", "kind")
        .agg(F.count("*").alias("messages"), F.min("due_ms").alias("first_due_ms"))
    )
    of_broker = of_store.groupBy("cluster", "broker_name", "real_topic", "kind").agg(
        F.max("messages").alias("messages"), F.min("first_due_ms").alias("first_due_ms")
    )
    return of_broker.groupBy("cluster", F.col("real_topic").alias("topic"), "kind").agg(
        F.sum("messages").alias("messages"), F.min("first_due_ms").alias("first_due_ms")
    )
