"""A user's own job, to be killed: it streams a topic into a folder of Parquet files.

    python messages_query.py OPTIONS OUT CHECKPOINT TRIGGER

OPTIONS: JSON of the source's options. TRIGGER: `forever`, or `now` to end with what is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from aerobee.offset_audit.run.session import audit_session


def main(arguments: Sequence[str]) -> None:
    options, out, checkpoint, trigger = arguments
    settings = {"spark.sql.shuffle.partitions": "2", "spark.task.maxFailures": "1"}
    with audit_session("local[2]", settings=settings, is_brief=True) as spark:
        messages = spark.readStream.format("aerobee.messages").options(**json.loads(options)).load()
        writer = messages.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        if trigger == "now":
            writer = writer.trigger(availableNow=True)
        query = writer.start(out)
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
