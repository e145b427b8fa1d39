"""Records to be added to the key index whose keys have not been extracted yet.

The cost of hashing depends on the number of keys, and a batch may consist of little else. So a
caller that must not block keeps only the properties, end to end, and another thread hashes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from aerobee.store.format.index_file import IndexKeys
from aerobee.store.format.index_keys import UInt32Array, hash_keys, topic_hash
from aerobee.store.format.record_arrays import Int64Array

PIECE_BYTES: Final = 1 << 16
"""How many bytes of properties are hashed at once, unless those of one record are longer."""


class LooseRecord(NamedTuple):
    """A record whose keys have not been extracted yet: cheap to make, and hashed with many
    others."""

    topic: str
    properties: bytes
    physical_offset: int
    store_timestamp_ms: int


class UnhashedKeys:
    """Properties of many records, in log order. Only `key_count` changes, when it becomes known."""

    __slots__ = (
        "_ends",
        "_physical_offsets",
        "_properties",
        "_starts",
        "_store_timestamps_ms",
        "_topics",
        "key_count",
        "skipped",
    )

    def __init__(
        self,
        topics: str | Sequence[str],
        properties: bytes | bytearray,
        places: tuple[Int64Array, Int64Array],
        physical_offsets: Int64Array,
        store_timestamps_ms: Int64Array,
    ) -> None:
        """`places` are the start and end of each record's properties in `properties`, which must
        not be changed any more; `topics` is the topic of all records or of each."""
        self._topics = topics
        self._properties = properties
        self._starts, self._ends = places
        self._physical_offsets = physical_offsets
        self._store_timestamps_ms = store_timestamps_ms
        # The number of keys, once all have been read; and how many keys at the start are skipped.
        self.key_count: int | None = None
        self.skipped = 0

    @classmethod
    def of_loose(cls, loose: Sequence[LooseRecord]) -> UnhashedKeys:
        sizes = np.array([len(record.properties) for record in loose], np.int64)
        ends = np.cumsum(sizes)
        return cls(
            [record.topic for record in loose],
            b"".join([record.properties for record in loose]),
            (ends - sizes, ends),
            np.array([record.physical_offset for record in loose], np.int64),
            np.array([record.store_timestamp_ms for record in loose], np.int64),
        )

    def without(self, count: int) -> UnhashedKeys:
        """The same without its first `count` keys."""
        rest = copy(self)
        rest.skipped += count
        return rest

    def __len__(self) -> int:
        """The number of records, at least one."""
        return len(self._ends)

    @property
    def memory_bytes(self) -> int:
        """The size in memory."""
        return len(self._properties) + 32 * len(self._ends)

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the last record, whether it has a key or not."""
        return int(self._store_timestamps_ms[-1])

    def hashed(self, only_with: bytes = b"") -> Iterator[IndexKeys]:
        """[any thread] The keys, one piece at a time, without the skipped ones.

        Pieces whose properties do not contain the bytes `only_with` may be left out.
        """
        to_skip, count = self.skipped, 0
        if to_skip:
            only_with = b""
        for first, end in pairwise(self._bounds()):
            start, stop = int(self._starts[first]), int(self._ends[end - 1])
            if only_with and self._properties.find(only_with, start, stop) < 0:
                continue
            keys = self._hash(first, end)
            count += len(keys)
            skipped = min(to_skip, len(keys))
            to_skip -= skipped
            yield keys.part(skipped, len(keys))
        if not only_with:
            self.key_count = count

    def _bounds(self) -> list[int]:
        """Bounds of groups of records that are hashed together."""
        sizes = np.cumsum(self._ends - self._starts)
        bounds = [0]
        while (first := bounds[-1]) < len(sizes):
            before = int(sizes[first - 1]) if first else 0
            end = int(np.searchsorted(sizes, before + PIECE_BYTES, side="right"))
            bounds.append(max(end, first + 1))
        return bounds

    def _hash(self, first: int, end: int) -> IndexKeys:
        chosen = slice(first, end)
        found = hash_keys(
            self._properties, self._starts[chosen], self._ends[chosen], self._prefixes(first, end)
        )
        records = found.records + first
        return IndexKeys(
            found.hashes, self._physical_offsets[records], self._store_timestamps_ms[records]
        )

    def _prefixes(self, first: int, end: int) -> int | UInt32Array:
        if isinstance(self._topics, str):
            return topic_hash(self._topics)
        topics = self._topics[first:end]
        prefixes = {topic: topic_hash(topic) for topic in set(topics)}
        return np.array([prefixes[topic] for topic in topics], np.uint32)


def hash_loose_records(loose: Sequence[LooseRecord]) -> IndexKeys:
    """The keys of records from anywhere, in the records' order."""
    return join_keys(list(UnhashedKeys.of_loose(loose).hashed()))


def join_keys(parts: Sequence[IndexKeys]) -> IndexKeys:
    """Concatenated."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return IndexKeys(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))
    return IndexKeys(
        np.concatenate([part.hashes for part in parts]),
        np.concatenate([part.physical_offsets for part in parts]),
        np.concatenate([part.store_timestamps_ms for part in parts]),
    )
