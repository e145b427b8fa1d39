"""How findings name problems of queues: by queue, or by store if there are many queues."""

from __future__ import annotations

from aerobee.offset_audit.checks.data.stores import PLACES_MAX, STORE
from aerobee.offset_audit.checks.finding_rows import sentence
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column, Window


def by_place(trouble: Frame) -> Frame:
    """Rows of `compare` summed by queue; a store with more than PLACES_MAX queues gets one row.

    `topic` and `queue_id` are null in such a row. `listed`: how many of the messages are listed by
    a queue.
    """
    one = F.struct(
        "topic", "queue_id", "first_offset", "last_offset", "first_position", "detail", "class"
    )
    queues = trouble.groupBy(*STORE, "topic", "queue_id").agg(
        F.try_sum("messages").alias("messages"),
        F.try_sum(F.when(F.col("class") != "HOLE", F.col("messages")).otherwise(0)).alias("listed"),
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.min_by(one, F.col("first_position")).alias("first"),
    )
    are_many = F.count("*").over(Window.partitionBy(*STORE)) > PLACES_MAX
    return (
        queues.withColumn("are_many", are_many)
        .withColumn("place_topic", F.when(~F.col("are_many"), F.col("topic")))
        .withColumn("place_queue_id", F.when(~F.col("are_many"), F.col("queue_id")))
        .groupBy(
            *STORE, F.col("place_topic").alias("topic"), F.col("place_queue_id").alias("queue_id")
        )
        .agg(
            F.count("*").alias("queues"),
            F.count_distinct(F.col("first.topic")).alias("topics"),
            F.try_sum("messages").alias("messages"),
            F.try_sum("listed").alias("listed"),
            F.min("first_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.min_by("first", F.col("first.first_position")).alias("first"),
        )
        .withColumn("first_position", F.col("first.first_position"))
        .withColumn("detail", F.col("first.detail"))
    )


def place_text() -> Column:
    """`orders/3, queue offsets 5 to 9`, or how many queues there are."""
    return F.when(
        F.col("queue_id").isNotNull(),
        sentence(
            "{topic}/{queue_id}{offsets}",
            offsets=F.when(
                F.col("first_offset") == F.col("last_offset"),
                sentence(", queue offset {first_offset}"),
            )
            .when(
                F.try_subtract(F.col("messages"), F.lit(1))
                == F.try_subtract(F.col("last_offset"), F.col("first_offset")),
                sentence(", queue offsets {first_offset} to {last_offset}"),
            )
            .otherwise(sentence(", queue offsets between {first_offset} and {last_offset}")),
        ),
    ).otherwise(
        sentence(
            "{queues|queue|queues} of {topics|topic|topics}, first "
            "{first.topic}/{first.queue_id} from queue offset {first.first_offset}"
        )
    )
