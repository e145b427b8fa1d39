"""Delayed messages in a broker of this process: stored as by its send path, with a clock that tests
set at will."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aerobee.broker.delayed.feature import Delays
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.read_work import ReadWork
from aerobee.store.format.delayed_records import Delay, waiting_record
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.record import encode_record, iterate_records
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.record_view import Record
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.broker.conftest import RunningBroker

BORN_HOST = HostAddress(b"\x7f\x00\x00\x01", 4242)


class SetClock(SystemClock):
    """The machine's clock, except that a test sets its time of day."""

    __slots__ = ("ahead_ms",)

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def set_to(self, now_ms: int) -> None:
        self.ahead_ms = now_ms - time.time_ns() // 1_000_000


def record_to_send(
    topic: str,
    body: bytes,
    *,
    unique_key: str = "",
    keys: str = "",
    now_ms: int = 1_700_000_000_000,
) -> Record:
    """As a producer encodes it."""
    named = {"UNIQ_KEY": unique_key, "KEYS": keys, "TAGS": "late"}
    properties = "".join(f"{name}\x01{value}\x02" for name, value in named.items() if value)
    data = encode_record(
        topic=topic.encode(),
        body=body,
        properties=properties.encode(),
        born_timestamp_ms=now_ms,
        born_host=BORN_HOST,
        store_host_ipv6=False,
    )
    return Record(data, 0, len(data))


def send_later(
    broker: RunningBroker,
    topic: str,
    bodies: Iterable[bytes],
    *,
    queue_id: int = 0,
    deliver_ms: int = 0,
    level: int = 0,
) -> list[str]:
    """Store waiting messages; returns their unique keys."""
    unique_keys = []
    with broker.writes.publishing:
        for body in bodies:
            key = f"KEY{body[:40].decode()}"
            moved = waiting_record(
                record_to_send(topic, body, unique_key=key, now_ms=broker.clock.now_ms()),
                Delay(level=level) if level else Delay(deliver_ms=deliver_ms),
                topic=topic,
                queue_id=queue_id,
                store_host_ipv6=False,
            )
            broker.writes.append_copies(
                moved.topic, moved.queue_id, [moved.record], [ProducerRun(0, 0, 1)]
            )
            unique_keys.append(key)
    return unique_keys


@dataclass(frozen=True)
class Delivered:
    """A message as consumers see it."""

    body: bytes
    queue_offset: int
    stored_ms: int
    properties: dict[str, str]
    born_ms: int


def delivered(broker: RunningBroker, topic: str, queue_id: int = 0) -> list[Delivered]:
    """All messages of a queue."""
    reads = broker.store.reads
    found: list[Delivered] = []
    offset = broker.store.queues.bounds(topic, queue_id).min_offset
    while True:
        wanted = QueueRead(topic, queue_id, offset, 1 << 20, 1_000)
        read = reads.read(wanted)
        outcome = read.run() if isinstance(read, ReadWork) else read
        if not outcome.records:
            return found
        found += [
            Delivered(
                bytes(record.body),
                record.queue_offset,
                record.store_timestamp_ms,
                record.properties,
                record.born_timestamp_ms,
            )
            for record in iterate_records(outcome.records)
        ]
        offset = outcome.located.next_offset


async def until_delivered(
    broker: RunningBroker, topic: str, count: int, queue_id: int = 0
) -> list[Delivered]:
    """The messages of a queue, once there are this many."""
    await until(lambda: len(delivered(broker, topic, queue_id)) >= count)
    return delivered(broker, topic, queue_id)


def is_settled(broker: RunningBroker) -> bool:
    """Whether everything due by now was delivered, and the journal has confirmed it."""
    delays = broker.feature(Delays)
    feeder, term, overdue = delays.feeder, delays.mover.term, delays.mover.overdue()
    if term is None or overdue is None:
        return False
    return (
        overdue[0] == 0
        and term.progress.open is None
        and delays.journal.waiting_bytes == 0
        and feeder.is_complete
        and feeder.index.loaded_until.due_ms > broker.clock.now_ms()
    )


async def settled(broker: RunningBroker) -> None:
    """Until everything due by the clock as set was delivered."""
    broker.feature(Delays).mover.wake()
    await until(lambda: is_settled(broker), "delayed messages come to rest")
