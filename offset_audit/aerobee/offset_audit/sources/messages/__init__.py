"""Messages for users' own Spark jobs: `spark.read` and `spark.readStream` of a live cluster or of
stores' files.

    spark.read.format("aerobee.messages").option("nameservers", "127.0.0.1:8081").option(
        "topic", "orders"
    ).load()

`docs/spark-messages.md` has the options and columns.
"""

from __future__ import annotations

from aerobee.offset_audit.sources.messages.source import MessagesSource

__all__ = ["MessagesSource"]
