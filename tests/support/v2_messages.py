"""Messages as official clients of apache.rocketmq.v2 send them, and as brokers store them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aerobee.rocketmq_api.receiving.messages import MessageWriter
from aerobee.rocketmq_api.rules.message_types import MessageType
from aerobee.rocketmq_api.sending.records import Circumstances, take_message
from aerobee.rocketmq_api.times import timestamp
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, Record, encode_record
from aerobee.store.format.tags import TagsCodes
from apache.rocketmq.v2 import definition_pb2 as v2

NOW_MS = 1_800_000_000_000
MESSAGE_ID = "0102FC0000000174BC0B12E21A00000000"
PEER = HostAddress.parse("10.0.0.7:50000")
STORE_HOST = HostAddress.parse("10.0.0.5:10911")
QUEUE_ID = 3
QUEUE_OFFSET = 41
STORED_MS = NOW_MS + 7
ALL_TYPES = tuple(MessageType)
TOPIC = v2.Resource(resource_namespace="shop", name="orders")


def message(
    body: bytes = b"body",
    *,
    user: Mapping[str, str] | None = None,
    keys: Iterable[str] = (),
    encoding: v2.Encoding = v2.IDENTITY,
    message_id: str = MESSAGE_ID,
) -> v2.Message:
    """With what every client sets; tests set the rest."""
    return v2.Message(
        topic=TOPIC,
        user_properties=user or {},
        body=body,
        system_properties=v2.SystemProperties(
            message_id=message_id,
            keys=keys,
            body_encoding=encoding,
            message_type=v2.NORMAL,
            born_timestamp=timestamp(NOW_MS),
            born_host="client-1",
        ),
    )


def at(**changes: object) -> Circumstances:
    """A topic that accepts everything."""
    given: dict[str, object] = {
        "topic": "shop%orders",
        "accepted": ALL_TYPES,
        "peer": PEER,
        "now_ms": NOW_MS + 1,
    }
    return Circumstances(**(given | changes))  # type: ignore[arg-type]


def stamped(record: bytes, topic: str = "shop%orders") -> Record:
    """As read from a log."""
    batch = check_batch(
        record,
        [len(record)],
        topic=topic,
        limits=BatchLimits(),
        store_host_ipv6=False,
        tags=TagsCodes(),
    )
    batch.stamp(
        queue_id=QUEUE_ID,
        base_queue_offset=QUEUE_OFFSET,
        base_physical_offset=8_812,
        store_timestamp_ms=STORED_MS,
        store_host=STORE_HOST,
    )
    return Record(bytes(batch.buffer))


def stored(sent: v2.Message) -> Record:
    """The record of a message, made by the product's own code."""
    return stamped(take_message(sent, at()).record)


def record_with(
    properties: Mapping[str, str], body: bytes = b"body", *, sys_flag: int = 0
) -> Record:
    """A record written by something else."""
    return stamped(
        encode_record(
            topic=b"shop%orders",
            body=body,
            properties=encode_properties(properties),
            born_timestamp_ms=NOW_MS,
            born_host=PEER,
            sys_flag=sys_flag,
        )
    )


@dataclass(frozen=True)
class Delivery:
    """How a record is delivered."""

    topic: v2.Resource
    attempt: int
    receipt_handle: str = ""
    needs_plain_body: bool = False


def message_of(record: Record, delivery: Delivery) -> v2.Message:
    """The only message of an answer."""
    message = v2.Message()
    writer = MessageWriter(delivery.topic, needs_plain_body=delivery.needs_plain_body)
    writer.write(message, record, attempt=delivery.attempt, receipt_handle=delivery.receipt_handle)
    return message
