"""Stores made of numbers: what a log and its queue files say, with damage whose findings are known.

Each message has a fate, and each fate's trouble is known by construction. Readers' rows follow from
what is left: ranges in random parts, and a drill that gives rows of the blocks it is asked for.
"""

from __future__ import annotations

import random
from binascii import crc32
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from aerobee.offset_audit.frames.frame import Engine, Frame
from aerobee.offset_audit.tables import QUEUE_ROWS, Tables
from tests.offset_audit.table_builders import NOW_MS, TableRows, frame

BLOCK = 8
"""Queue offsets of a block here."""
SIZE = 100
UNTIL_MS = NOW_MS - 50_000

PLAIN = ("LOST", "HOLE", "UNLISTED", "DUPLICATE", "HEADER", "TAGS_CODE", "BAD_ENTRY")
WITH_FAULTS = ("LOST_IN_FAULT", "HOLE_IN_FAULT", "UNLISTED", "DUPLICATE", "TAGS_CODE")
"""A hole beside damage is always explained by it, so a store has only one of the two kinds."""

Trouble = tuple[str, str, int, str, bool]
"""Store, topic, queue, class, and whether damage explains it."""


@dataclass
class Record:
    """A record of the log, or what an entry says of one."""

    topic: str
    queue_id: int
    queue_offset: int
    position: int
    tags_code: int
    store_ms: int
    size: int = SIZE


@dataclass
class MadeStore:
    """One store, what its readers say, and what the checks must find."""

    name: str
    records: list[Record] = field(default_factory=list)
    entries: list[Record] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    expected: Counter[Trouble] = field(default_factory=Counter)
    topics: set[str] = field(default_factory=set)

    def expect(self, record: Record, trouble: str, is_explained: bool = False) -> None:
        key = (self.name, record.topic, record.queue_id, trouble, is_explained)
        self.expected[key] += 1


def healthy(name: str, chance: random.Random, *, queues: int = 3, messages: int = 40) -> MadeStore:
    """A log with the messages of some queues mixed, all listed; it begins anywhere."""
    store = MadeStore(name, topics={"t", "u"})
    begins = [chance.choice((0, 5, BLOCK, 1_000)) for _ in range(queues)]
    position = chance.choice((0, 10_000))
    for number in range(messages * queues):
        queue = chance.randrange(queues)
        record = Record(
            "tu"[queue % 2],
            queue,
            begins[queue],
            position,
            chance.randrange(-5, 5),
            UNTIL_MS - (messages * queues - number) * 10,
        )
        begins[queue] += 1
        position += SIZE
        store.records.append(record)
        store.entries.append(replace(record))
    return store


def damaged(name: str, chance: random.Random) -> MadeStore:
    """A healthy store, some of whose messages meet their fate."""
    store = healthy(name, chance)
    fates = chance.choice((PLAIN, WITH_FAULTS))
    by_queue: dict[int, list[Record]] = {}
    for record in store.records:
        by_queue.setdefault(record.queue_id, []).append(record)
    for records in by_queue.values():
        for number in range(1, len(records) - 2, 3):
            if chance.random() < 0.25:
                _damage(store, records[number], chance.choice(fates), records[number - 1])
    unhurt = {one.position: one.queue_offset for one in store.entries}
    for record in store.records[-4:]:
        is_whole = unhurt.get(record.position) == record.queue_offset
        if is_whole and chance.random() < 0.5:  # on its way to the queue as the reader passed
            record.store_ms = UNTIL_MS + 10
            _drop(store.entries, record)
    return store


def _damage(store: MadeStore, record: Record, fate: str, before: Record) -> None:
    entry = next(one for one in store.entries if one.position == record.position)
    if fate == "DUPLICATE":
        store.expect(before, fate)
        record.queue_offset = before.queue_offset
        return
    store.expect(record, fate.removesuffix("_IN_FAULT"), fate.endswith("_IN_FAULT"))
    if fate in {"LOST", "HOLE", "LOST_IN_FAULT", "HOLE_IN_FAULT"}:
        _drop(store.records, record)
    if fate in {"UNLISTED", "HOLE", "HOLE_IN_FAULT"}:
        _drop(store.entries, record)
    if fate.endswith("_IN_FAULT"):
        store.faults.append(record.position)
    if fate == "HEADER":
        record.queue_offset += 12_345
    if fate == "TAGS_CODE":
        entry.tags_code += 1
    if fate == "BAD_ENTRY":
        entry.size += 1


def _drop(records: list[Record], record: Record) -> None:
    records[:] = [one for one in records if one.position != record.position]


def store_rows(rows: TableRows, store: MadeStore, chance: random.Random, **broker: Any) -> None:
    """What readers say of the store: its broker, topics, faults and ranges."""
    told: dict[str, Any] = {"entries_until_ms": UNTIL_MS, "keys_until_ms": UNTIL_MS, **broker}
    rows.add("brokers", broker_name=store.name, role="STORE", **told)
    for topic in store.topics:
        rows.add("topics", broker_name=store.name, topic=topic)
    for position in store.faults:
        rows.add(
            "faults",
            broker_name=store.name,
            store=store.name,
            kind="BAD_LENGTHS",
            file="commitlog/0",
            position=position,
            size=SIZE,
        )
    for source, records in (("LOG", store.records), ("ENTRIES", store.entries)):
        parts: dict[tuple[str, int, int, int], list[Record]] = {}
        for record in records:
            block = record.queue_offset // BLOCK
            part = chance.randrange(2) if source == "LOG" else 0
            parts.setdefault((record.topic, record.queue_id, block, part), []).append(record)
        for (topic, queue_id, block, _), some in parts.items():
            rows.add(
                "queue_ranges",
                broker_name=store.name,
                store=store.name,
                source=source,
                topic=topic,
                queue_id=queue_id,
                block=block,
                **_range(some, source),
            )


def _range(records: list[Record], source: str) -> dict[str, Any]:
    offsets = [one.queue_offset for one in records]
    times = [one.store_ms for one in records]
    return {
        "first_offset": min(offsets),
        "last_offset": max(offsets),
        "messages": len(records),
        "distinct_messages": len(set(offsets)),
        "digest": sum(
            crc32(repr((one.queue_offset, one.position, one.size, one.tags_code)).encode())
            for one in records
        ),
        "first_position": min(one.position for one in records),
        "last_position": max(one.position for one in records),
        "first_store_ms": min(times) if source == "LOG" else None,
        "last_store_ms": max(times) if source == "LOG" else None,
        "disorders": sum(after < before for before, after in pairwise(offsets)),
    }


def with_rows(tables: Tables, engine: Engine, stores: list[MadeStore]) -> Tables:
    """Tables that can be asked for the single messages of blocks."""
    every = frame(
        engine,
        QUEUE_ROWS,
        [
            {
                "cluster": "c",
                "broker_name": store.name,
                "broker_id": 0,
                "store": store.name,
                "source": source,
                "topic": one.topic,
                "queue_id": one.queue_id,
                "queue_offset": one.queue_offset,
                "position": one.position,
                "size": one.size,
                "tags_code": one.tags_code,
                "store_ms": one.store_ms if source == "LOG" else None,
            }
            for store in stores
            for source, records in (("LOG", store.records), ("ENTRIES", store.entries))
            for one in records
        ],
    )

    def drill(blocks: Frame) -> Frame:
        wanted = blocks.select("store", "topic", "queue_id", "block")
        of_block = every.selectExpr("*", f"queue_offset div {BLOCK} as block")
        return of_block.join(wanted, ["store", "topic", "queue_id", "block"], "left_semi").select(
            *every.columns
        )

    return replace(tables, queue_rows=drill)
