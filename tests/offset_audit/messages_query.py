"""A user's own job, to be killed: it streams a topic into a folder of Parquet files.

    python messages_query.py OPTIONS OUT CHECKPOINT

OPTIONS: JSON of the source's options.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from aerobee.offset_audit.run.session import audit_session


def stream_into(
    spark: SparkSession,
    options: Mapping[str, str],
    out: str,
    checkpoint: str,
    *,
    is_bounded: bool = False,
) -> StreamingQuery:
    """Goes on for ever, or (`is_bounded`) ends with what is there."""
    messages = spark.readStream.format("aerobee.messages").options(**options).load()
    writer = messages.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    if is_bounded:
        writer = writer.trigger(availableNow=True)
    return writer.start(out)


def main(arguments: Sequence[str]) -> None:
    options, out, checkpoint = arguments
    settings = {"spark.sql.shuffle.partitions": "2", "spark.task.maxFailures": "1"}
    with audit_session("local[2]", settings=settings, is_brief=True) as spark:
        query = stream_into(spark, json.loads(options), out, checkpoint)
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
