"""PURE: rows of the index from records of the timer queue.

A recall request, which Apache's brokers store beside the messages, is also a row: due before
everything else, so that it is carried out before the message it names could be delivered, and only
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from operator import methodcaller
from typing import Final, NamedTuple

import numpy as np

from aerobee.broker.reading.handed import Handed
from aerobee.broker.timers.pending import Rows, make_rows
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch_properties import BatchProperties
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.delayed_records import NotDelayed, timer_facts
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.properties import NAME_END, VALUE_END, find_values
from aerobee.store.format.record_arrays import Int64Array
from aerobee.store.format.record_layout import RecordCorrupt
from aerobee.store.format.record_view import Record

HANDED_ROWS_MAX: Final = 50_000
_UNIQUE_KEY: Final = (b"UNIQ_KEY" + NAME_END,)
REQUEST_DUE_MS: Final = 0
"""The due time of requests."""


class RowsFound(NamedTuple):
    """`refused`: queue offsets of records that are not messages, and why."""

    rows: Rows
    refused: list[tuple[int, str]]


def key_hash(topic: str, unique_key: str) -> int:
    """Hash of what a message is found by: files contain it."""
    digest = blake2b(f"{topic}+{unique_key}".encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)


class HandedTimers:
    """Rows of what a master has just appended to the timer queue: nobody needs to read it again.

    On the loop. The send path's `TimerMemory`.
    """

    def __init__(self, *, rows_max: int = HANDED_ROWS_MAX) -> None:
        """More than `rows_max` rows at a time are not kept; they have to be read."""
        self._handed: Handed[Rows] = Handed()
        self._rows_max = rows_max

    def stored(
        self, topic: str, batch: CheckedBatch, due_ms: Sequence[int], appended: Appended
    ) -> None:
        """A batch for `topic` has been appended to the timer queue, nothing in it is a recall."""
        offset, position = appended.base_queue_offset, appended.base_physical_offset
        first = self._handed.first_offset
        if first is not None and offset + batch.count - first > self._rows_max:
            return
        sizes = batch.sizes
        rows = make_rows(
            due_ms,
            np.arange(offset, offset + batch.count),
            position + np.cumsum(sizes) - sizes,
            sizes,
            topic_hashes=java_string_hash(topic),
            key_hashes=_key_hashes(topic, batch.properties),
        )
        self._handed.append(offset, appended.end, rows)

    def take(self, offset: int, confirmed_end: int) -> Rows | None:
        """Those from an offset of the queue on. None: they are not confirmed, or must be read."""
        return self._handed.take(offset, confirmed_end)

    def begins_after(self, offset: int) -> int | None:
        """How many records from this offset on must be read first; None: all."""
        return self._handed.begins_after(offset)

    def clear(self) -> None:
        """The term is over: what is not confirmed may never be."""
        self._handed.clear()


def _key_hashes(topic: str, properties: BatchProperties) -> Int64Array | list[int]:
    joined, start = properties.joined, _UNIQUE_KEY[0]
    begin = len(start)
    if (
        joined.isascii()
        and joined.count(start) == len(properties)
        and all(map(methodcaller("startswith", start), properties))
    ):
        # As our producers write them: a fifth of the price.
        prefix = f"{topic}+".encode()
        digests = [
            blake2b(prefix + each[begin : each.find(VALUE_END, begin)], digest_size=8).digest()
            for each in properties
        ]
        if all(each[begin] != VALUE_END[0] for each in properties):
            return np.frombuffer(b"".join(digests), ">i8").astype(np.int64)
    keys = [find_values(each, 0, len(each), _UNIQUE_KEY)[0] for each in properties]
    return [key_hash(topic, each) if each else 0 for each in keys]


def rows_of(records: Iterable[Record]) -> RowsFound:
    """Rows in the order of the records, which is queue order."""
    columns: list[tuple[int, int, int, int, int, int]] = []
    refused: list[tuple[int, str]] = []
    hashes: dict[str, int] = {}
    for record in records:
        try:
            due_ms, recalled, topic, unique_key = timer_facts(record)
        except (NotDelayed, RecordCorrupt) as error:
            refused.append((record.queue_offset, str(error)))
            continue
        topic_hash = hashes.get(topic)
        if topic_hash is None:
            topic_hash = hashes[topic] = java_string_hash(topic)
        columns.append(
            (
                due_ms if recalled is None else REQUEST_DUE_MS,
                *record.place,
                topic_hash,
                key_hash(topic, unique_key) if unique_key else 0,
            )
        )
    if not columns:
        return RowsFound(make_rows([], [], [], []), refused)
    due, offsets, positions, sizes, topic_hashes, key_hashes = zip(*columns, strict=True)
    rows = make_rows(
        due, offsets, positions, sizes, topic_hashes=topic_hashes, key_hashes=key_hashes
    )
    return RowsFound(rows, refused)
