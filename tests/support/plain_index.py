"""A key index that is too simple to be wrong: one key after another, numbers in lists.

It shares no code with the product except the hash, and produces the bytes of its files and the
answers to searches according to the format's rules.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from aerobee.store.format.java_hash import index_key_hash

Entry = tuple[int, int, int, int]


@dataclass
class PlainFile:
    slots: list[int]
    entries_max: int
    begin_ms: int = 0
    end_ms: int = 0
    begin: int = 0
    end: int = 0
    used: int = 0
    entries: list[Entry] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.entries) + 1

    def put(self, key_hash: int, offset: int, timestamp_ms: int) -> None:
        slot = key_hash % len(self.slots)
        previous = self.slots[slot]
        seconds = int((timestamp_ms - self.begin_ms) / 1000) if self.begin_ms > 0 else 0
        seconds = min(max(seconds, 0), 2**31 - 1)
        self.slots[slot] = self.count
        if self.count <= 1:
            self.begin_ms, self.begin = timestamp_ms, offset
        self.entries.append((key_hash, offset, seconds, previous))
        self.used += previous == 0
        self.end_ms, self.end = timestamp_ms, offset

    def encode(self) -> bytes:
        head = (self.begin_ms, self.end_ms, self.begin, self.end, self.used, self.count)
        return b"".join(
            (
                struct.pack(">qqqqii", *head),
                struct.pack(f">{len(self.slots)}i", *self.slots),
                bytes(20),
                *(struct.pack(">iqii", *entry) for entry in self.entries),
                bytes(20 * (self.entries_max - self.count)),
            )
        )

    def search(self, key_hash: int, begin_ms: int, end_ms: int) -> list[int]:
        found: list[int] = []
        number = self.slots[key_hash % len(self.slots)]
        while number > 0:
            entry_hash, offset, seconds, previous = self.entries[number - 1]
            at_ms = self.begin_ms + seconds * 1000
            if entry_hash == key_hash and begin_ms <= at_ms <= end_ms:
                found.append(offset)
            if at_ms < begin_ms:
                break
            number = previous
        return found


class PlainIndex:
    """All files, oldest first."""

    def __init__(self, slots: int, entries_max: int) -> None:
        self.slots = slots
        self.entries_max = entries_max
        self.files: list[PlainFile] = []

    def put(self, topic: str, key: str, offset: int, timestamp_ms: int) -> None:
        self.put_hash(index_key_hash(f"{topic}#{key}"), offset, timestamp_ms)

    def put_hash(self, key_hash: int, offset: int, timestamp_ms: int) -> None:
        if not self.files:
            self.files.append(PlainFile([0] * self.slots, self.entries_max))
        elif self.files[-1].count >= self.entries_max:
            last = self.files[-1]
            self.files.append(
                PlainFile(
                    [0] * self.slots,
                    self.entries_max,
                    last.end_ms,
                    last.end_ms,
                    last.end,
                    last.end,
                )
            )
        self.files[-1].put(key_hash, offset, timestamp_ms)

    def search(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int = 2**63 - 1, most: int = 64
    ) -> list[int]:
        found: list[int] = []
        key_hash = index_key_hash(f"{topic}#{key}")
        for file in reversed(self.files):
            first, last = file.begin_ms, file.end_ms
            inside = first <= begin_ms <= last or first <= end_ms <= last
            if inside or (begin_ms < first and end_ms > last):
                found += file.search(key_hash, begin_ms, end_ms)
            if first < begin_ms or len(found) >= most:
                break
        return found[:most]
