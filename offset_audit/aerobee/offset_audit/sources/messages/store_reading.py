"""Messages read from a store's files by one executor: a stretch of the log, in which the queues'
entries say what is wanted and where it begins.

Records near each other are read together. What an entry says is checked against its record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.columns import Columns, Expected, RecordColumns
from aerobee.offset_audit.sources.messages.losses import Loss, LossRule, losses_of
from aerobee.offset_audit.sources.messages.place import Window
from aerobee.offset_audit.sources.messages.queue_entries import QueueEntries
from aerobee.offset_audit.sources.messages.store_log import StoreLog
from aerobee.offset_audit.sources.store.files import StoreFile, queue_files
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.store.format.names import LIGHT_QUEUE_PREFIX
from aerobee.store.format.record_arrays import BoolArray, Int64Array
from aerobee.store.format.record_layout import RECORD_SIZE_MIN

_BATCH_BYTES: Final = 4 * 1024 * 1024
_BATCH_RECORDS: Final = 16_384
_GAP_BYTES_MAX: Final = 16 * 1024
"""A gap between two wanted records is read too if it is at most this large."""


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Messages [begin, end) of a queue, and the positions of the first and the last record."""

    topic: str
    queue_id: int
    begin: int
    end: int
    first_position: int
    last_position: int

    def reaches(self, log_begin: int, log_end: int) -> bool:
        return self.first_position < log_end and self.last_position >= log_begin


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Records to read, by rising position; `slices` gives the slice of each."""

    slices: Int64Array
    offsets: Int64Array
    positions: Int64Array
    sizes: Int64Array

    def only(self, chosen: BoolArray | slice) -> _Wanted:
        return _Wanted(
            self.slices[chosen], self.offsets[chosen], self.positions[chosen], self.sizes[chosen]
        )


@dataclass(frozen=True, slots=True)
class StoreReading:
    """See Reading: records of these slices that begin in [log_begin, log_end)."""

    store: StoreFolder
    slices: tuple[QueueSlice, ...]
    log_begin: int
    log_end: int
    window: Window
    columns: Columns
    fail_on_data_loss: bool

    def batches(self) -> Iterator[Any]:
        rule = LossRule(self.fail_on_data_loss)
        with StoreLog(self.store) as log:
            wanted = self._there(self._wanted(rule), log, rule)
            for begin, end, buffer, starts in _reads(wanted, log):
                batch = self._batch(wanted.only(slice(begin, end)), buffer, starts, rule)
                if batch is not None:
                    yield batch

    # ------------------------------------------------------------------------------ inside

    def _wanted(self, rule: LossRule) -> _Wanted:
        """What the queues' entries say about this stretch of the log."""
        numbers = {(one.topic, one.queue_id) for one in self.slices}
        files = {
            (found.topic, found.queue_id): found.files
            for found in queue_files(self.store, lambda topic, number: (topic, number) in numbers)
        }
        parts: list[_Wanted] = []
        for index, one in enumerate(self.slices):
            part = self._part(index, one, files.get((one.topic, one.queue_id), ()), rule)
            if part is not None:
                parts.append(part)
        if not parts:
            nothing = np.zeros(0, np.int64)
            return _Wanted(nothing, nothing, nothing, nothing)
        positions = np.concatenate([part.positions for part in parts])
        order = np.argsort(positions, kind="stable")
        return _Wanted(
            np.concatenate([part.slices for part in parts])[order],
            np.concatenate([part.offsets for part in parts])[order],
            positions[order],
            np.concatenate([part.sizes for part in parts])[order],
        )

    def _part(
        self, index: int, one: QueueSlice, files: Sequence[StoreFile], rule: LossRule
    ) -> _Wanted | None:
        try:
            with QueueEntries(files) as entries:
                begin, end = one.begin, one.end
                if self.log_begin >= 0:
                    begin = entries.first_at(self.log_begin, one.begin, one.end)
                if self.log_end < 1 << 63:
                    # Searched as the next piece searches its beginning: damaged entries may mislead
                    # a search, but both to the same place, so each entry is in one piece.
                    end = entries.first_at(self.log_end, one.begin, one.end)
                if begin == end:
                    return None
                positions, sizes = entries.between(begin, end)
        except FileNotFoundError:
            queue = self._queue(one)
            rule.apply([Loss(queue, one.begin, one.end, "the queue's files are gone")])
            return None
        return _Wanted(np.full(end - begin, index), np.arange(begin, end), positions, sizes)

    def _there(self, wanted: _Wanted, log: StoreLog, rule: LossRule) -> _Wanted:
        is_entry = (wanted.sizes >= RECORD_SIZE_MIN) & (wanted.positions >= 0)
        self._report(wanted, ~is_entry, "the queue has no entry of them", rule)
        wanted = wanted.only(is_entry)
        is_held = log.holds(wanted.positions, wanted.sizes)
        self._report(wanted, ~is_held, "the log no longer has them", rule)
        return wanted.only(is_held)

    def _batch(
        self, wanted: _Wanted, buffer: bytes, starts: Int64Array, rule: LossRule
    ) -> Any | None:
        is_read = starts + wanted.sizes <= len(buffer)
        if not is_read.all():
            self._report(wanted, ~is_read, "the log no longer has them", rule)
            wanted, starts = wanted.only(is_read), starts[is_read]
        records = RecordColumns(buffer, starts, starts + wanted.sizes, self._expected(wanted))
        sound = records.sound(check_bodies=self.columns.check_bodies, unchecked=self._light(wanted))
        if not self.window.is_all:
            times = records.store_ms
            is_inside = (times >= self.window.first_ms) & (times <= self.window.last_ms)
            is_inside |= ~sound
            records.only(is_inside)
            wanted, sound = wanted.only(is_inside), sound[is_inside]
        self._report(wanted, ~sound, "damaged", rule)
        records.only(sound)
        wanted = wanted.only(sound)
        if self.columns.body:
            fine = records.decompressible()
            self._report(wanted, ~fine, "not decompressible", rule)
            records.only(fine)
        return records.batch(self.columns) if records.count else None

    def _expected(self, wanted: _Wanted) -> Expected:
        slices = self.slices
        queue_ids = np.array([one.queue_id for one in slices], np.int64)
        return Expected(
            self.store.origin.broker_name,
            tuple(one.topic for one in slices),
            wanted.slices,
            queue_ids[wanted.slices],
            wanted.offsets,
        )

    def _light(self, wanted: _Wanted) -> BoolArray | None:
        """Which records may belong to other queues: those of light queues."""
        is_light = [one.topic.startswith(LIGHT_QUEUE_PREFIX) for one in self.slices]
        return np.array(is_light)[wanted.slices] if any(is_light) else None

    def _report(self, wanted: _Wanted, gone: BoolArray, reason: str, rule: LossRule) -> None:
        if not gone.any():
            return
        losses: list[Loss] = []
        for index in np.unique(wanted.slices[gone]).tolist():
            offsets = np.sort(wanted.offsets[gone & (wanted.slices == index)])
            losses += losses_of(self._queue(self.slices[index]), offsets, reason)
        rule.apply(losses)

    def _queue(self, one: QueueSlice) -> MessageQueue:
        return MessageQueue(one.topic, self.store.origin.broker_name, one.queue_id)


def _reads(wanted: _Wanted, log: StoreLog) -> Iterator[tuple[int, int, bytes, Int64Array]]:
    """For each batch: the records [begin, end) of `wanted`, a buffer that holds them, and where in
    it they start."""
    positions, ends = wanted.positions, wanted.positions + wanted.sizes
    count = len(positions)
    if count == 0:
        return
    segments = log.segments_of(positions)
    is_break = np.ones(count, np.bool_)
    is_break[1:] = (
        (positions[1:] - ends[:-1] > _GAP_BYTES_MAX)
        | (segments[1:] != segments[:-1])
        | (positions[1:] // _BATCH_BYTES != positions[:-1] // _BATCH_BYTES)
    )
    runs = np.flatnonzero(is_break)
    stops = np.append(runs[1:], count)
    parts: list[bytes] = []
    starts: list[Int64Array] = []
    begin, size = 0, 0
    for first, stop in zip(runs.tolist(), stops.tolist(), strict=True):
        # Sizes may be wrong: the furthest end counts, not the last.
        run_bytes = int(ends[first:stop].max() - positions[first])
        if parts and (size + run_bytes > _BATCH_BYTES or stop - begin > _BATCH_RECORDS):
            yield begin, first, _joined(parts), np.concatenate(starts)
            parts, starts, begin, size = [], [], first, 0
        part = log.read(int(positions[first]), run_bytes)
        starts.append(positions[first:stop] - positions[first] + size)
        parts.append(part if len(part) == run_bytes else part.ljust(run_bytes, b"\0"))
        size += run_bytes
    yield begin, count, _joined(parts), np.concatenate(starts)


def _joined(parts: list[bytes]) -> bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)
