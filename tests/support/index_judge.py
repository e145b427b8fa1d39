"""Whether index files contain exactly what inserting each key of the log in turn produces."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.support.plain_store import PlainRecord

HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")


@functools.lru_cache(maxsize=1 << 16)
def java_hash(text: str) -> int:
    code = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) % 2**32
    code = abs(code - 2**32 if code >= 2**31 else code)
    return 0 if code == 2**31 else code


def keys_of(record: PlainRecord) -> list[int]:
    """The hashes under which a record is filed, in this order."""
    if record.sys_flag & 0xC == 0xC:
        return []
    keys = [record.properties.get("UNIQ_KEY", ""), *record.properties.get("KEYS", "").split(" ")]
    return [java_hash(f"{record.topic}#{key}") for key in keys if key]


def index_files(root: Path) -> list[Path]:
    folder = root / "index"
    return sorted(folder.iterdir()) if folder.exists() else []


def index_problems(
    root: Path, slots: int, entries: int, records: list[PlainRecord], *, complete: bool
) -> Iterator[str]:
    """`complete`: each key from the first file's first record on is there, in order; a record where
    an earlier recovery restarted may be there twice."""
    wanted = [(key, r.physical_offset) for r in records for key in keys_of(r)]
    times = {record.physical_offset: record.store_timestamp for record in records}
    files = index_files(root)
    found: list[tuple[int, int]] = []
    previous: IndexFile | None = None
    for path in files:
        if not path.is_file() or len(path.name) != 17 or not path.name.isdigit():
            yield f"index/{path.name} does not belong there"
            continue
        if path.stat().st_size != HEADER.size + 4 * slots + ENTRY.size * entries:
            yield f"index/{path.name} has {path.stat().st_size} bytes"
            continue
        file = IndexFile(path, slots, entries)
        for line in file.problems(times, previous, is_last=path == files[-1], closed=complete):
            yield f"index/{path.name}: {line}"
        found += file.pairs()
        previous = file
    yield from _order_problems(found, wanted, complete=complete)


def keys_lost_by_a_crash(
    root: Path, slots: int, entries: int, records: list[PlainRecord], *, read_from: int
) -> Iterator[str]:
    """What Apache's broker could no longer find by key if it started here after a crash: it removes
    index files that end after the checkpoint, and indexes what it reads of the log."""
    (trusted_ms,) = struct.unpack(">q", (root / "checkpoint").read_bytes()[16:24])
    files = [IndexFile(path, slots, entries) for path in index_files(root)]
    kept = {pair for file in files if file.end_time <= trusted_ms for pair in file.pairs()}
    gone = {pair for file in files for pair in file.pairs()} - kept
    lost = [
        record.physical_offset
        for record in records
        if record.physical_offset < read_from
        and any((key, record.physical_offset) in gone for key in keys_of(record))
    ]
    if lost:
        yield f"the keys of {len(lost)} records from {lost[0]} on would be lost"


def _order_problems(
    found: list[tuple[int, int]], wanted: list[tuple[int, int]], *, complete: bool
) -> Iterator[str]:
    first_kept = wanted[0][1] if wanted else 0
    found = [pair for pair in found if pair[1] >= first_kept]
    if not found:
        if complete and wanted:
            yield "the index is empty"
        return
    at = next((i for i, pair in enumerate(wanted) if pair == found[0]), None)
    if at is None:
        yield f"the index begins with {found[0]}, which no record has"
        return
    twice = 0
    for pair in found:
        if at < len(wanted) and wanted[at] == pair:
            at += 1
        elif pair in wanted[max(0, at - 64) : at]:
            twice += 1
        else:
            yield f"the index has {pair} where {wanted[at : at + 1]} follows"
            return
    if twice > 64:
        yield f"{twice} keys are there twice"
    if complete and at != len(wanted):
        yield f"the index lacks {len(wanted) - at} keys, from {wanted[at]} on"


class IndexFile:
    """One file, parsed with struct."""

    def __init__(self, path: Path, slots: int, entries: int) -> None:
        data = path.read_bytes()
        header = HEADER.unpack(data[: HEADER.size])
        self.begin_time, self.end_time, self.begin, self.end, self.used_slots, self.count = header
        self.slots = struct.unpack_from(f">{slots}i", data, HEADER.size)
        first = HEADER.size + 4 * slots
        self.entries = [
            ENTRY.unpack_from(data, first + ENTRY.size * n) for n in range(min(self.count, entries))
        ]
        self.entries_max = entries
        self.rest = data[first + ENTRY.size * self.count :]

    def pairs(self) -> list[tuple[int, int]]:
        return [(entry[0], entry[1]) for entry in self.entries[1:]]

    def problems(
        self,
        times: dict[int, int],
        previous: IndexFile | None,
        *,
        is_last: bool,
        closed: bool,
    ) -> Iterator[str]:
        if not 1 <= self.count <= self.entries_max:
            yield f"its count is {self.count}"
            return
        if not is_last and self.count < self.entries_max:
            yield f"it was rolled with {self.count} of {self.entries_max} entries"
        if any(self.entries[0]):
            yield "entry 0 is in use"
        if closed and any(self.rest):
            yield "something lies after its last entry"
        newest: dict[int, int] = {}
        for number, (key, _, _, before) in enumerate(self.entries[1:], 1):
            slot = key % len(self.slots)
            if before != newest.get(slot, 0):
                yield f"entry {number} follows {before}, not {newest.get(slot, 0)}"
            newest[slot] = number
        for slot, number in enumerate(self.slots):
            if number != newest.get(slot, 0):
                yield f"slot {slot} leads to {number}, not {newest.get(slot, 0)}"
        if self.used_slots != len(newest):
            yield f"it says {self.used_slots} slots are in use, {len(newest)} are"
        if self.count > 1:
            yield from self._time_problems(times, previous)

    def _time_problems(self, times: dict[int, int], previous: IndexFile | None) -> Iterator[str]:
        ends = (self.entries[1][1], self.entries[-1][1])
        if (self.begin, self.end) != ends:
            yield f"its header names {(self.begin, self.end)}, its entries {ends}"
        for what, offset, said in (
            ("begins", self.begin, self.begin_time),
            ("ends", self.end, self.end_time),
        ):
            if times.get(offset, said) != said:
                yield f"it {what} at {said}, the record was stored at {times[offset]}"
        for number, (_, offset, seconds, _) in enumerate(self.entries[1:], 1):
            stored = times.get(offset)
            if stored is None:
                continue
            since = self.begin_time
            if number == 1:
                # Relative to what the header said before, that is the end of the previous file.
                since = previous.end_time if previous is not None else stored
            if seconds != max(0, (stored - since) // 1000) and not (number == 1 and seconds == 0):
                yield f"entry {number} says {seconds} s, stored {stored - since} ms after"
