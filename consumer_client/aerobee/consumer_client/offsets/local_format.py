"""The content of offsets.json as Apache RocketMQ's Java client reads and writes it. PURE.

The map's keys are objects, so the text is not JSON:

    {
        "offsetTable":{{
                "brokerName":"broker-a",
                "queueId":0,
                "topic":"TopicA"
            }:128
        }
    }
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aerobee.cluster_view.route import MessageQueue
from aerobee.store_format.json_config import JsonIllegal, ObjectKey, parse_object, render_json

TABLE = "offsetTable"


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """The file's bytes, in a form that both clients read."""
    table = {
        ObjectKey.of(
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
        ): offset
        for queue, offset in sorted(offsets.items())
    }
    return render_json({TABLE: table})


def decode_offsets(data: bytes) -> dict[MessageQueue, int]:
    """The offsets in a file's bytes.

    Raises:
        JsonIllegal: not such a file; says where.
    """
    table = parse_object(data).get(TABLE, {})
    if not isinstance(table, dict):
        raise _illegal(f"{TABLE} must be an object")
    offsets: dict[MessageQueue, int] = {}
    for key, offset in table.items():
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise _illegal(f"the offset of {key!r} must be an integer, not {offset!r}")
        offsets[_queue_of(key)] = offset
    return offsets


def _queue_of(key: str | ObjectKey) -> MessageQueue:
    # Stricter JSON writers make quoted text of an object key.
    members: Mapping[Any, object] = parse_object(key) if isinstance(key, str) else key.as_dict()
    topic, broker_name = members.get("topic"), members.get("brokerName")
    queue_id = members.get("queueId")
    if (
        not isinstance(topic, str)
        or not isinstance(broker_name, str)
        or not isinstance(queue_id, int)
    ):
        raise _illegal(f"{key!r} names no queue by topic, brokerName and queueId")
    return MessageQueue(topic, broker_name, queue_id)


def _illegal(problem: str) -> JsonIllegal:
    return JsonIllegal(problem, position=0, line=1, column=1)
