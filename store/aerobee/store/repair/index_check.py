"""Checks every key of every record against the index files, and every index entry against its
record.

Keys reach the index in log order, so both are read once, side by side: for each stretch of the log,
its keys and the entries that point into it are compared as sets. The other fields of entries, their
chains and the slots at the end, are checked by inserting the entries once more in memory. So no
chain is ever walked, and a cycle shows as an entry that points to the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aerobee.store.engine.index.index_files import INDEX_DIRECTORY, index_path, is_index_name
from aerobee.store.format.index_file import (
    HEADER_SIZE,
    IndexGeometry,
    IndexHeader,
)
from aerobee.store.repair.damage import Damage, Int64Array
from aerobee.store.repair.findings import Findings, Kind
from aerobee.store.repair.folder import Folder
from aerobee.store.repair.index_replay import Block, IndexReplay
from aerobee.store.repair.log_check import CheckedChunk
from aerobee.store.repair.log_reader import LogReader
from aerobee.store.repair.quarantine import QUARANTINED

# Keys collected before they are compared, and log bytes: positions in a stretch must fit 32 bits.
_KEYS_PER_ROUND = 500_000
_BYTES_PER_ROUND = 1 << 30
_NAMED_MAX = 64


@dataclass(frozen=True, slots=True)
class _Keys:
    """Columns of equal length, in log order."""

    hashes: Int64Array
    offsets: Int64Array
    timestamps_ms: Int64Array


class IndexCheck:
    """Feed it the log, then call `finish`. Without index files it only reports that."""

    def __init__(
        self,
        folder: Folder,
        geometry: IndexGeometry,
        findings: Findings,
        damage: Damage,
        *,
        is_aborted: bool,
        keys_per_round: int = _KEYS_PER_ROUND,
    ) -> None:
        self._folder = folder
        self._findings = findings
        self._damage = damage
        self._is_aborted = is_aborted
        self._keys_per_round = keys_per_round
        self._log = LogReader(folder)
        self._collected: list[_Keys] = []
        self._count = 0
        self._compared_to = folder.log_min_offset
        self._log_end = folder.log_min_offset
        self.keys = 0
        self.entries = 0
        self._replays = self._open(geometry)
        self._active = 0
        # The range the index must cover: from the first record it lists up to the last one.
        headers = [replay.header for replay in self._replays if replay.header.has_entries]
        self._begin = headers[0].begin_physical_offset if headers else 0
        self._end = headers[-1].end_physical_offset if headers else 0

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the last key in the files, 0 if there is none."""
        headers = [replay.header for replay in self._replays if replay.header.has_entries]
        return headers[-1].end_timestamp_ms if headers else 0

    def _open(self, geometry: IndexGeometry) -> list[IndexReplay]:
        disk = self._folder.disk
        entries = disk.list(INDEX_DIRECTORY)
        named = [entry for entry in entries if not entry.is_directory and is_index_name(entry.name)]
        for entry in entries:
            if not is_index_name(entry.name) and not entry.is_directory:
                path = index_path(entry.name)
                self._findings.add(
                    Kind.INDEX_STRAY_FILE, path, "its name is not that of an index file"
                )
                self._folder.strays.append(path)
        fitting = [entry for entry in named if entry.size_bytes == geometry.file_bytes]
        if named and not fitting:
            self._findings.add(
                Kind.INDEX_NOT_CHECKED,
                INDEX_DIRECTORY,
                f"the files have {named[0].size_bytes} bytes, with {geometry.slots} slots and "
                f"{geometry.entries} entries they would have {geometry.file_bytes}",
            )
            return []
        for entry in named:
            if entry.size_bytes != geometry.file_bytes:
                self._report(
                    Kind.INDEX_FILE_SIZE,
                    index_path(entry.name),
                    f"it has {entry.size_bytes} bytes, not {geometry.file_bytes}",
                    0,
                )
        replays: list[IndexReplay] = []
        for entry in fitting:
            file = disk.open_file(index_path(entry.name), read_only=True)
            header = IndexHeader.decode(file.read_at(0, HEADER_SIZE))
            if header.count > geometry.entries:
                self._report(
                    Kind.INDEX_HEADER_WRONG,
                    index_path(entry.name),
                    f"it counts {header.count} entries, the file has room for {geometry.entries}",
                    36,
                )
                continue
            previous = replays[-1].header if replays else None
            replays.append(IndexReplay(entry.name, file, geometry, header, previous))
        return replays

    # ------------------------------------------------------------------------------ feeding

    def feed(self, chunk: CheckedChunk) -> None:
        """Take in the keys of the next chunk of the log."""
        result = chunk.result
        every = np.arange(result.count, dtype=np.int64)
        found = result.index_keys(chunk.data, chunk.position, every)
        self.keys += len(found)
        self._log_end = chunk.position + result.valid_end
        if not self._replays:
            return
        self._collected.append(
            _Keys(
                found.hashes.astype(np.int64),
                found.physical_offsets,
                found.store_timestamps_ms,
            )
        )
        self._count += len(found)
        is_long = self._log_end - self._compared_to >= _BYTES_PER_ROUND
        if self._count >= self._keys_per_round or is_long:
            self._compare(self._log_end)

    def finish(self) -> None:
        """The log has ended."""
        if not self._replays:
            is_missing = not self._folder.disk.list(INDEX_DIRECTORY)
            if self.keys and is_missing and not self._folder.is_live:
                self._findings.add(
                    Kind.INDEX_MISSING, INDEX_DIRECTORY, f"{self.keys} keys are in no index"
                )
            return
        self._compare(1 << 62)
        for replay in self._replays:
            self._judge_file(replay, is_newest=replay is self._replays[-1])

    # ------------------------------------------------------------------------------ comparing

    def _compare(self, end: int) -> None:
        """Compares keys and entries of records before the log offset `end`."""
        start, self._compared_to = self._compared_to, end
        parts, self._collected, self._count = self._collected, [], 0
        keys = _Keys(
            *(
                np.concatenate([getattr(part, name) for part in parts] or [np.empty(0, np.int64)])
                for name in ("hashes", "offsets", "timestamps_ms")
            )
        )
        blocks = list(self._blocks(end))
        listed = [block.combined(start) for block in blocks]
        actual = np.sort(np.concatenate(listed)) if listed else np.empty(0, np.int64)
        expected = np.sort(((keys.offsets - start) << 31) | keys.hashes)
        for block in blocks:
            block.replay.insert(block, _times_of(block.offsets, keys))
            self._judge_block(block, start, expected)
        missing = expected[~_is_in(expected, actual)]
        if len(missing):
            self._judge_missing((missing >> 31) + start)

    def _blocks(self, end: int) -> Iterator[Block]:
        while self._active < len(self._replays):
            replay = self._replays[self._active]
            yield from replay.blocks_before(end)
            if not replay.is_done:
                return
            self._active += 1

    def _judge_block(self, block: Block, start: int, expected: Int64Array) -> None:
        self.entries += len(block.offsets)
        replay = block.replay
        for number, text in replay.take_chain_problems():
            self._report(
                Kind.INDEX_CHAIN_WRONG, index_path(replay.name), text, replay.entry_at(number)
            )
        known = _is_in(block.combined(start), expected)
        known |= block.offsets < self._folder.log_min_offset
        wrong = np.flatnonzero(~known)
        if self._damage.regions and len(wrong):
            regions = (
                np.searchsorted(self._damage.region_starts(), block.offsets[wrong], "right") - 1
            )
            inside = (regions >= 0) & (block.offsets[wrong] < self._damage.region_ends()[regions])
            wrong = wrong[~inside]
        named = 0
        for index in wrong.tolist():
            offset = int(block.offsets[index])
            if offset >= self._log_end and (self._is_aborted or self._folder.is_live):
                continue
            if named >= _NAMED_MAX or self._is_quarantined(offset):
                continue
            named += 1
            number = block.first + index
            self._report(
                Kind.INDEX_ENTRY_WRONG,
                index_path(replay.name),
                f"entry {number} is for a key that the record at log position {offset} does "
                "not have",
                replay.entry_at(number),
            )

    def _judge_missing(self, offsets: Int64Array) -> None:
        """No entry has the keys of these records."""
        offsets = offsets[offsets >= self._begin]
        is_tail = offsets >= self._end
        tail = offsets[is_tail]
        if len(tail) and not self._folder.is_live:
            if self._is_aborted:
                self._findings.add(
                    Kind.INDEX_BEHIND_LOG,
                    INDEX_DIRECTORY,
                    f"{len(tail)} keys from log position {int(tail[0])} on are not listed",
                )
            else:
                self._report_missing(tail)
        if len(offsets) > len(tail):
            self._report_missing(offsets[~is_tail])

    def _report_missing(self, offsets: Int64Array) -> None:
        self._report(
            Kind.INDEX_KEY_MISSING,
            INDEX_DIRECTORY,
            f"{len(offsets)} keys of records from log position {int(offsets[0])} on are not listed",
            None,
        )

    def _judge_file(self, replay: IndexReplay, *, is_newest: bool) -> None:
        """Checks header and slots at the end of a file."""
        if is_newest and self._folder.is_live:
            return
        path = index_path(replay.name)
        if not replay.is_done:
            self._report(
                Kind.INDEX_HEADER_WRONG, path, "the file holds fewer entries than it counts", 36
            )
            return
        problem = replay.header_problem()
        if problem:
            self._report(Kind.INDEX_HEADER_WRONG, path, problem, 0)
        for slot, text in replay.slot_problems(may_be_ahead=is_newest and self._is_aborted):
            self._report(Kind.INDEX_SLOT_WRONG, path, text, replay.slot_at(slot))

    def _report(self, kind: Kind, path: str, text: str, position: int | None) -> None:
        self._damage.index_problem = self._damage.index_problem or kind.meaning
        self._findings.add(kind, path, text, position=position)

    def _is_quarantined(self, offset: int) -> bool:
        size = int.from_bytes(self._log.read(offset, 4), "big", signed=True)
        record = self._log.record_at(offset, size)
        return record is not None and record.property_value(QUARANTINED) is not None


def _is_in(values: Int64Array, among: Int64Array) -> npt.NDArray[np.bool_]:
    """Which of the values are among the sorted others."""
    if not len(among):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(among, values), len(among) - 1)
    found: npt.NDArray[np.bool_] = among[at] == values
    return found


def _times_of(offsets: Int64Array, keys: _Keys) -> Int64Array:
    """The store time of the record at each offset, -1 if the log has none there."""
    if not len(keys.offsets):
        return np.full(len(offsets), -1, np.int64)
    at = np.minimum(np.searchsorted(keys.offsets, offsets), len(keys.offsets) - 1)
    return np.where(keys.offsets[at] == offsets, keys.timestamps_ms[at], -1)
