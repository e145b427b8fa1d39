"""How findings name problems of queues: by queue, or by store if there are many queues."""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.data.stores import PLACES_MAX, STORE
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import either, phrase

PLACE: Final = either(
    "queue_id is not null",
    "{topic}/{queue_id}{offsets}",
    "{queues|queue|queues} of {topics|topic|topics}, first {first.topic}/{first.queue_id} from "
    "queue offset {first.first_offset}",
    offsets=f"""case when first_offset = last_offset then {phrase(", queue offset {first_offset}")}
        when try_subtract(messages, 1) = try_subtract(last_offset, first_offset)
            then {phrase(", queue offsets {first_offset} to {last_offset}")}
        else {phrase(", queue offsets between {first_offset} and {last_offset}")} end""",
)
"""For rows of `by_place`: `orders/3, queue offsets 5 to 9`, or how many queues there are."""


def by_place(trouble: Frame) -> Frame:
    """Rows of `compare` summed by queue; a store with more than PLACES_MAX queues gets one row.

    `topic` and `queue_id` are null in such a row. `listed`: how many of the messages are listed by
    a queue.
    """
    one = "struct(topic, queue_id, first_offset, last_offset, first_position, detail, class)"
    are_many = f"count(1) over (partition by {', '.join(STORE)}) > {PLACES_MAX}"
    return (
        trouble.groupBy(*STORE, "topic", "queue_id")
        .agg(
            "try_sum(messages) messages",
            "try_sum(if(class <> 'HOLE', messages, 0)) listed",
            "min(first_offset) first_offset",
            "max(last_offset) last_offset",
            f"min_by({one}, first_position) first",
        )
        .withColumn("are_many", are_many)
        .withColumns(
            {
                "topic": "if(are_many, null, topic)",
                "queue_id": "if(are_many, null, queue_id)",
            }
        )
        .groupBy(*STORE, "topic", "queue_id")
        .agg(
            "count(1) queues",
            "count(distinct first.topic) topics",
            "try_sum(messages) messages",
            "try_sum(listed) listed",
            "min(first_offset) first_offset",
            "max(last_offset) last_offset",
            "min_by(first, first.first_position) first",
        )
        .withColumns({"first_position": "first.first_position", "detail": "first.detail"})
    )
