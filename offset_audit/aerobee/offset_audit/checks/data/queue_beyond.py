"""QUEUE_BEYOND: queues that hold messages, of a topic that has fewer queues.

Routes name queues up to the topic's number of them, so nobody reads what is beyond. That happens if
a topic is given fewer queues while messages are left, or if its table was damaged.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.progress.replicas import BROKER, judging_replicas, of_replicas
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.names import IS_SYSTEM_TOPIC
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables

NAME: Final = "QUEUE_BEYOND"
EVIDENCE: Final = phrase(
    "{messages|messages} of topic {topic} {are} in {held} of {broker_name}, but the topic has only "
    "{queue_count|queues} there: nobody reads what is beyond.",
    are="if(messages = 1, 'is', 'are')",
    held=either(
        "queues = 1", "queue {first_queue}", "{queues|queues}, the first of them {first_queue},"
    ),
)


def run(tables: Tables, limits: Limits) -> Frame:
    """One finding for each topic of a broker."""
    replicas = judging_replicas(tables, limits)
    topics = of_replicas(tables.topics, replicas).selectExpr(
        *BROKER, "topic", "greatest(read_queue_count, write_queue_count) queue_count"
    )
    found = (
        of_replicas(tables.queues, replicas)
        .where(f"max_offset > min_offset and not {IS_SYSTEM_TOPIC}")
        .join(topics, [*BROKER, "topic"])
        .where("queue_id >= queue_count")
        .groupBy(*BROKER, "topic", "queue_count")
        .agg(
            "count(1) queues",
            "min(queue_id) first_queue",
            "try_sum(try_subtract(max_offset, min_offset)) messages",
        )
        .withColumn("queue_id", "if(queues = 1, first_queue, null)")
        .join(replicas.select(*BROKER, "broker_id", "role", "epoch"), list(BROKER))
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.WARNING,
        evidence=EVIDENCE,
        affected="messages",
        command="aerobee topic show {topic}",
    )


CHECK = Check(
    NAME,
    "Messages are in queues that their topic no longer has.",
    run,
    needs={"queues": "count(1) > 0"},
)
