"""Reads what a poll wants of a queue: its records by offset, and which offsets were covered.

Owns: how much is read for one poll. Reads what is in memory at once, and the rest in its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.pop.entries import NO_LANE, ranges_of
from aerobee.broker.pop.lanes import lane_of
from aerobee.broker.pop.requests import Read, ToRead
from aerobee.broker.reading.egress import READ_BYTES_MAX, ColdRead, Egress, Fetched, ReadCode
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.queues.reading import STEPS_MAX, Filter
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX
from aerobee.store.format.properties import PropertyName
from aerobee.store.format.record import Record, iterate_records

AGAIN_RANGES_MAX: Final = 64
"""Non-contiguous ranges of redelivered messages read for one poll."""


@dataclass(slots=True)
class Found:
    """What was read of a queue for one poll."""

    read: Read
    records: dict[int, Record] = field(default_factory=dict)
    """By offset."""
    is_beyond: bool = False
    """The queue ends before the requested messages."""


class PopReads:
    """On the loop."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def read(
        self,
        key: GroupQueue,
        wanted: ToRead,
        passing: Filter | None,
        *,
        is_ordered: bool,
        origin: str = "",
        is_scan: bool = False,
    ) -> Found:
        """`passing` is an exact filter. `is_scan`: the poll's read before found nothing. `origin`:
        of a retry topic's messages, the filter applies
        to those from this topic; of the others only the origin is read. Raises AerobeeError, as
        `Egress.read` and `Egress.load`."""
        wants = None if origin else passing
        records: dict[int, Record] = {}
        again: list[int] = []
        left = READ_BYTES_MAX
        for begin, end in ranges_of(wanted.again)[:AGAIN_RANGES_MAX]:
            while begin < end and left > 0:
                got = await self._fetch(key, begin, end - begin, wants, left)
                if got.code is ReadCode.NO_NEW_MESSAGE or got.next_offset <= begin:
                    break  # it is in flight, so it will come back
                left -= len(got.records)
                _note(records, got, end)
                again += range(begin, min(end, got.next_offset))
                begin = got.next_offset
        begin = end = wanted.begin
        is_beyond = False
        if wanted.room > 0 and left > 0:
            got = await self._fetch(key, begin, wanted.room, wants, left, is_scan=is_scan)
            is_beyond = got.code is ReadCode.OFFSET_TOO_LARGE
            end = max(begin, got.next_offset)
            _note(records, got, end)
        origins: dict[int, str] = {}
        failures: dict[int, int] = {}
        if key.topic.startswith(RETRY_PREFIX):
            origins = _origins(records)
            failures = {offset: max(0, each.reconsume_times) for offset, each in records.items()}
        chosen = sorted(records)
        if origin:
            chosen = [each for each in chosen if origins.get(each, origin) == origin]
            if passing is not None:
                chosen = await self._passing(key, chosen, records, passing)
        messages = {offset: _lane(records[offset]) if is_ordered else NO_LANE for offset in chosen}
        return Found(Read(messages, again, begin, end, origins, failures), records, is_beyond)

    async def _passing(
        self,
        key: GroupQueue,
        offsets: Sequence[int],
        records: Mapping[int, Record],
        passing: Filter,
    ) -> list[int]:
        """Those whose record matches, evaluated in pieces."""
        chosen: list[int] = []
        steps = STEPS_MAX
        for offset in offsets:
            if steps >= STEPS_MAX:
                await self._egress.loop_turn(key.group)
                steps = 0
            matches, price = passing.verdict(records[offset])
            steps += price
            if matches:
                chosen.append(offset)
        return chosen

    async def records(self, key: GroupQueue, offsets: Sequence[int]) -> dict[int, Record]:
        """The records of those that exist. Raises AerobeeError."""
        wanted = ToRead(offsets, 0, 0, (), None)
        return (await self.read(key, wanted, None, is_ordered=False)).records

    async def find(
        self, key: GroupQueue, offsets: Sequence[int], is_wanted: Callable[[Record], bool]
    ) -> int | None:
        """The first of these messages that is wanted; None: none is. Raises AerobeeError."""
        for begin, end in ranges_of(offsets):
            while begin < end:
                got = await self._fetch(key, begin, end - begin, None, READ_BYTES_MAX)
                if got.code is ReadCode.NO_NEW_MESSAGE or got.next_offset <= begin:
                    break
                await self._egress.loop_turn(key.group)
                for record in iterate_records(got.records):
                    if record.queue_offset < end and is_wanted(record):
                        return record.queue_offset
                begin = got.next_offset
        return None

    async def _fetch(
        self,
        key: GroupQueue,
        offset: int,
        count: int,
        wants: Filter | None,
        bytes_max: int,
        *,
        is_scan: bool = False,
    ) -> Fetched:
        topic, queue_id, group = key.topic, key.queue_id, key.group
        wanted = QueueRead(topic, queue_id, offset, bytes_max, count, wants, group, is_scan)
        found = self._egress.read(wanted)
        return await self._egress.load(found) if isinstance(found, ColdRead) else found


def _note(records: dict[int, Record], got: Fetched, end: int) -> None:
    for record in iterate_records(got.records):
        if record.queue_offset < end:
            records[record.queue_offset] = record


def _origins(records: Mapping[int, Record]) -> dict[int, str]:
    """Origins of the records that name one. A message sent directly to a retry topic does not."""
    found = (
        (offset, each.property_value(PropertyName.RETRY_TOPIC)) for offset, each in records.items()
    )
    return {offset: origin for offset, origin in found if origin}


def _lane(record: Record) -> int:
    return lane_of(record.properties.get(PropertyName.SHARDING_KEY, "").encode())
