"""Messages waiting in system topics: half messages, those set aside, delayed and timer messages.

Each kind has its own record of what is done: the op topic and a consumer group's offsets, a table
of offsets by delay level, the timer's checkpoint and log. Aerobee's timer journal counts in
addition to Apache's files: either may know more, since both brokers may have used the folder.
Messages known to be long done are not read; each of the rest is a row, and `resolved` says whether
it is done after all. Rows contain the message's place in the system topic, and its target topic.
Messages given up according to the timer journal are reported as GIVEN_UP, with the reason.

Memory: a number for each open transaction or timer message, what was set aside, and the rows of one
stretch.

Apache's timer log has a record for each message put into the wheel: where it is, and its slot's
time. Slots before the checkpoint's read time were delivered. A record that deletes is in the slot
of what it deletes. Messages that the timer has not taken from its topic yet are in no slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.config_files import read_offset_table
from aerobee.offset_audit.sources.store.files import StoreFile, queue_files
from aerobee.offset_audit.sources.store.log_lookup import LogLookup
from aerobee.offset_audit.sources.store.log_tail import read_tail
from aerobee.offset_audit.sources.store.open_file import read_used
from aerobee.offset_audit.sources.store.plain_values import INT64_MAX, decimal
from aerobee.offset_audit.sources.store.plan import queue_pieces
from aerobee.offset_audit.sources.store.queue_chunks import queue_chunks
from aerobee.offset_audit.sources.store.ranges_digest import Int64Array
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts
from aerobee.offset_audit.sources.store.ranges_rows import PENDING, RecordBatch, batch_of
from aerobee.offset_audit.sources.store.timer_journal import (
    TIMER_JOURNAL_TOPIC,
    TIMER_QUEUE,
    DoneTimers,
)
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE
from aerobee.store.format.delayed_records import (
    HALF_TOPIC,
    TIMER_TOPIC,
    NotDelayed,
    timer_due_ms,
)
from aerobee.store.format.names import is_file_name
from aerobee.store.format.properties import PropertyName
from aerobee.store.format.record_view import Record
from aerobee.store.format.tags import SCHEDULE_TOPIC
from aerobee.store.format.timer_checkpoint import TimerCheckpoint, TimerCheckpointIllegal
from aerobee.store.format.timer_log import MAGIC_DELETE, TIMER_RECORD_SIZE, scan_timer_log
from aerobee.store.format.transaction_records import (
    ASIDE_TOPIC,
    OP_TOPIC,
    is_op_of_aside,
    op_of,
)

_LOG_FOLDER: Final = "timerlog"
_CHECKPOINT: Final = "config/timercheck"


@dataclass(frozen=True, slots=True)
class _Slotted:
    """A message in the wheel."""

    position: int
    slot_ms: int


class PendingTimers:
    """Reads the timer's files on creation."""

    def __init__(self, facts: StoreFacts, lookup: LogLookup) -> None:
        self._facts = facts
        self._lookup = lookup
        self._checkpoint = self._read_checkpoint()
        self._waiting: list[_Slotted] = []
        self._deletes: list[int] = []
        last = -1
        for file in self._log_files():
            last = max(last, self._read_log(file))
        self.queue_offset = max(self._checkpoint.last_queue_offset, self._behind(last))
        """The first offset of the timer's topic that is in no slot yet."""

    def messages(self, not_yet: Int64Array) -> Iterator[tuple[int, Record | None, int, bool]]:
        """(position, record, due time, whether it was recalled) of each waiting message.

        `not_yet` are positions of messages that are in no slot yet, in queue order.
        """
        deleted = {key for at in self._deletes for key in _deletes(self._lookup.record_at(at))}
        # A recall comes after its message: so each message is read once, and none is kept.
        for position in reversed(not_yet.tolist()):
            record = self._lookup.record_at(position)
            if record is None:
                continue
            deletes = _deletes(record)
            deleted.update(deletes)
            if not deletes:
                due_ms = due_ms_or(record, record.store_timestamp_ms)
                yield position, record, due_ms, _is_among(record, deleted)
        for one in self._waiting:
            found = self._lookup.record_at(one.position)
            yield one.position, found, due_ms_or(found, one.slot_ms), _is_among(found, deleted)

    def _read_checkpoint(self) -> TimerCheckpoint:
        try:
            return TimerCheckpoint.decode(self._facts.store.path(_CHECKPOINT).read_bytes())
        except (OSError, TimerCheckpointIllegal):
            return TimerCheckpoint()

    def _log_files(self) -> list[StoreFile]:
        folder = self._facts.store.path(_LOG_FOLDER)
        if not folder.is_dir():
            return []
        paths = sorted(path for path in folder.iterdir() if is_file_name(path.name))
        return [StoreFile(str(path), int(path.name), path.stat().st_size) for path in paths]

    def _read_log(self, file: StoreFile) -> int:
        """Process one file; returns the position of the last message that it names, -1 for none."""
        try:
            records = scan_timer_log(read_used(file, TIMER_RECORD_SIZE)).records
        except FileNotFoundError:
            return -1
        if not len(records):
            return -1
        bounds = self._facts.bounds
        slots = records["write_time_ms"].astype(np.int64) + records["delay_ms"]
        positions = records["commit_offset"].astype(np.int64)
        due = (slots >= self._checkpoint.last_read_time_ms) & (positions >= bounds.begin)
        due &= positions < bounds.end
        is_delete = (records["magic"] & MAGIC_DELETE) != 0
        self._deletes += positions[due & is_delete].tolist()
        waiting = np.flatnonzero(due & ~is_delete)
        self._waiting += map(_Slotted, positions[waiting].tolist(), slots[waiting].tolist())
        return int(positions[-1])

    def _behind(self, position: int) -> int:
        """The offset after that of the message at a log position."""
        record = self._lookup.record_at(position) if position >= 0 else None
        return 0 if record is None else record.queue_offset + 1


def _deletes(record: Record | None) -> tuple[str, ...]:
    """What a message deletes: a unique key, or topic and unique key; empty if it deletes
    nothing."""
    key = None if record is None else record.property_value(PropertyName.TIMER_DEL_UNIQKEY)
    return () if key is None else (key,)


def _is_among(record: Record | None, deleted: set[str]) -> bool:
    if record is None or not deleted or record.unique_key is None:
        return False
    topic = record.property_value(PropertyName.REAL_TOPIC) or ""
    return bool(deleted & {record.unique_key, f"{topic}+{record.unique_key}"})


def due_ms_or(record: Record | None, otherwise_ms: int) -> int:
    if record is None:
        return otherwise_ms
    try:
        return timer_due_ms(record)
    except NotDelayed:
        return otherwise_ms


_TRANSACTIONS: Final = "CID_RMQ_SYS_TRANS"
_OP_TAG: Final = "d"
_CHECKED_AFTER_MS: Final = 6_000
"""Apache's `transactionTimeOut`: producers are not asked about a younger half message."""

_ROWS_PER_BATCH: Final = 16_384


@dataclass(frozen=True, slots=True)
class Pending:
    """One message; None is what is unknown."""

    kind: str
    topic: str
    queue_id: int
    queue_offset: int | None
    position: int | None
    store_ms: int | None
    due_ms: int | None
    resolved: bool
    unique_key: str | None
    real_topic: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of a queue, one per row."""

    queue_offsets: Int64Array
    positions: Int64Array
    tags_codes: Int64Array


def pending_rows(facts: StoreFacts) -> Iterator[RecordBatch]:
    """PENDING of one store."""
    lookup = LogLookup(facts.store)
    rows: list[Pending] = []
    try:
        for row in _Waiting(facts, lookup).rows():
            rows.append(row)
            if len(rows) >= _ROWS_PER_BATCH:
                yield batch_of(PENDING, facts.store, rows)
                rows = []
    finally:
        lookup.close()
    if rows:
        yield batch_of(PENDING, facts.store, rows)


class _Waiting:
    """Goes through the system topics of one store."""

    def __init__(self, facts: StoreFacts, lookup: LogLookup) -> None:
        self._facts = facts
        self._lookup = lookup
        topics = (
            HALF_TOPIC,
            OP_TOPIC,
            ASIDE_TOPIC,
            SCHEDULE_TOPIC,
            TIMER_TOPIC,
            TIMER_JOURNAL_TOPIC,
        )
        queues = queue_files(facts.store, lambda topic, queue_id: topic in topics)
        self._queues = {(queue.topic, queue.queue_id): queue for queue in queues}
        tail = read_tail(facts.store, lookup, facts.tags())
        self._tail = {name: each for name, each in tail.items() if name[0] in topics}

    def rows(self) -> Iterator[Pending]:
        committed = read_offset_table(self._facts.store, "consumerOffset.json")
        delayed = read_offset_table(self._facts.store, "delayOffset.json")
        done = self._done_timers()
        for topic, queue_id in sorted({*self._queues, *self._tail}):
            if topic == HALF_TOPIC:
                yield from self._halves(queue_id, committed)
            elif topic == ASIDE_TOPIC:
                yield from self._asides(queue_id, committed)
            elif topic == SCHEDULE_TOPIC:
                first = _number(delayed.get(str(queue_id + 1)))
                yield from self._delayed(queue_id, first, done)
        yield from self._timers(done)
        yield from self._given_up(done)

    def entries(self, topic: str, queue_id: int, first: int) -> Iterator[Entries]:
        """The entries of a queue from an offset on whose records the log has; last come those that
        a running or killed broker has not put into the queue's files."""
        end = first
        for entries in self._entries_of_files(topic, queue_id, first):
            end = max(end, int(entries.queue_offsets[-1]) + 1)
            yield entries
        tail = self._tail.get((topic, queue_id))
        if tail is not None:
            bounds = self._facts.bounds
            counts = (tail.offsets >= end) & (tail.positions >= bounds.begin)
            counts &= tail.positions < bounds.end
            if counts.any():
                yield Entries(tail.offsets[counts], tail.positions[counts], tail.tags_codes[counts])

    def _entries_of_files(self, topic: str, queue_id: int, first: int) -> Iterator[Entries]:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return
        bounds = self._facts.bounds
        for whole in queue_pieces(self._facts.store, queue):
            piece = whole.cut(first * ENTRY_SIZE, whole.end)
            if piece is None:
                continue
            for chunk in queue_chunks(piece, chunk_entries=_ROWS_PER_BATCH):
                positions = chunk.positions
                counts = chunk.sound & (positions >= bounds.begin) & (positions < bounds.end)
                offsets = chunk.queue_offsets[counts]
                if len(offsets):
                    yield Entries(offsets, positions[counts], chunk.tags_codes[counts])

    # ------------------------------------------------------------------------- transactions

    def _halves(self, queue_id: int, committed: Mapping[str, object]) -> Iterator[Pending]:
        done = self._done(queue_id, _committed(committed, OP_TOPIC, queue_id))
        first = _committed(committed, HALF_TOPIC, queue_id)
        latest = self._latest_copies(queue_id, first)
        for entries in self.entries(HALF_TOPIC, queue_id, first):
            resolved = np.isin(entries.queue_offsets, done)
            rows = zip(
                entries.queue_offsets.tolist(),
                entries.positions.tolist(),
                resolved.tolist(),
                strict=True,
            )
            for offset, position, is_done in rows:
                record = self._lookup.record_at(position)
                key = None if record is None else record.unique_key
                # Before its producer is asked, a half message is stored once more; that copy
                # counts.
                is_done = is_done or (key is not None and latest.get(hash(key), offset) > offset)
                yield _pending("HALF", record, (HALF_TOPIC, queue_id, offset), position, is_done)

    def _asides(self, queue_id: int, committed: Mapping[str, object]) -> Iterator[Pending]:
        """Later records of their topic say which of them an operator has ended."""
        waiting: dict[int, tuple[int, Record | None]] = {}
        for entries in self.entries(
            ASIDE_TOPIC, queue_id, _committed(committed, ASIDE_TOPIC, queue_id)
        ):
            places = zip(entries.queue_offsets.tolist(), entries.positions.tolist(), strict=True)
            for offset, position in places:
                record = self._lookup.record_at(position)
                if record is not None and is_op_of_aside(record):
                    for done in op_of(record)[0]:
                        waiting.pop(done, None)
                else:
                    waiting[offset] = (position, record)
        for offset, (position, record) in waiting.items():
            # Nothing is due: they wait for a person.
            due_ms = None if record is None else record.store_timestamp_ms
            place = (ASIDE_TOPIC, queue_id, offset)
            yield _pending("ASIDE", record, place, position, False, due_ms=due_ms)

    def _done(self, queue_id: int, first: int) -> Int64Array:
        """Offsets of half messages that were committed or rolled back."""
        parts: list[Int64Array] = []
        for entries in self.entries(OP_TOPIC, queue_id, first):
            found: list[int] = []
            for position in entries.positions.tolist():
                record = self._lookup.record_at(position)
                if record is None or record.tag != _OP_TAG:
                    continue
                texts = record.body.decode("ascii", "replace").split(",")
                found += [done for text in texts if (done := decimal(text)) is not None]
            parts.append(np.array(found, np.int64))
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _latest_copies(self, queue_id: int, first: int) -> dict[int, int]:
        """For messages that were stored more than once, the last offset, by their key's hash."""
        latest: dict[int, int] = {}
        for entries in self.entries(HALF_TOPIC, queue_id, first):
            places = zip(entries.queue_offsets.tolist(), entries.positions.tolist(), strict=True)
            for offset, position in places:
                record = self._lookup.record_at(position)
                if record is None or record.unique_key is None:
                    continue
                if record.property_value(PropertyName.TRANSACTION_CHECK_TIMES) is not None:
                    latest[hash(record.unique_key)] = offset
        return latest

    # -------------------------------------------------------------------------------- delays

    def _done_timers(self) -> DoneTimers:
        done = DoneTimers()
        for entries in self.entries(TIMER_JOURNAL_TOPIC, 0, 0):
            for position in entries.positions.tolist():
                record = self._lookup.record_at(position)
                if record is not None:
                    done.take(bytes(record.body))
        return done

    def _delayed(self, queue_id: int, first: int, done: DoneTimers) -> Iterator[Pending]:
        level = queue_id + 1
        for entries in self.entries(SCHEDULE_TOPIC, queue_id, max(first, done.begin(level))):
            rows = zip(
                entries.queue_offsets.tolist(),
                entries.positions.tolist(),
                entries.tags_codes.tolist(),
                strict=True,
            )
            for offset, position, due_ms in rows:
                is_open = done.is_open(level, offset)
                if not is_open and done.is_done(level, offset, due_ms):
                    continue
                record = self._lookup.record_at(position)
                place = (SCHEDULE_TOPIC, queue_id, offset)
                yield _pending("DELAY", record, place, position, is_open, due_ms=due_ms)

    # -------------------------------------------------------------------------------- timers

    def _timers(self, done: DoneTimers) -> Iterator[Pending]:
        timers = PendingTimers(self._facts, self._lookup)
        first = max(timers.queue_offset, done.begin(TIMER_QUEUE))
        parts = [entries.positions for entries in self.entries(TIMER_TOPIC, 0, first)]
        not_yet = np.concatenate(parts) if parts else np.empty(0, np.int64)
        for position, record, due_ms, resolved in timers.messages(not_yet):
            offset = None if record is None else record.queue_offset
            if offset is not None and done.is_open(TIMER_QUEUE, offset):
                resolved = True
            elif offset is not None and done.is_done(TIMER_QUEUE, offset, due_ms):
                continue
            place = (TIMER_TOPIC, 0, offset)
            yield _pending("TIMER", record, place, position, resolved, due_ms=due_ms)

    # ------------------------------------------------------------------------------ given up

    def _given_up(self, done: DoneTimers) -> Iterator[Pending]:
        """Includes those that the log no longer has: that may be the reason."""
        offsets: dict[int, list[int]] = {}
        for queue, offset in sorted(done.given_up):
            offsets.setdefault(queue, []).append(offset)
        for queue, wanted in offsets.items():
            topic, queue_id = (
                (TIMER_TOPIC, 0) if queue == TIMER_QUEUE else (SCHEDULE_TOPIC, queue - 1)
            )
            positions = dict.fromkeys(wanted, -1)
            for entries in self.entries(topic, queue_id, wanted[0]):
                there = np.isin(entries.queue_offsets, wanted)
                positions |= zip(
                    entries.queue_offsets[there].tolist(),
                    entries.positions[there].tolist(),
                    strict=True,
                )
            for offset, position in positions.items():
                due_ms, reason = done.given_up[queue, offset]
                record = self._lookup.record_at(position) if position >= 0 else None
                row = _pending(
                    "GIVEN_UP", record, (topic, queue_id, offset), position, True, due_ms=due_ms
                )
                yield replace(row, position=position if position >= 0 else None, reason=reason)


def _pending(
    kind: str,
    record: Record | None,
    place: tuple[str, int, int | None],
    position: int,
    resolved: bool,
    *,
    due_ms: int | None = None,
) -> Pending:
    """`due_ms` None: for a half message, when it is to be asked about first."""
    topic, queue_id, queue_offset = place
    if record is None:
        return Pending(kind, topic, queue_id, queue_offset, position, None, due_ms, resolved, None)
    if due_ms is None:
        due_ms = record.born_timestamp_ms + _immunity_ms(record)
    return Pending(
        kind,
        topic,
        queue_id,
        queue_offset,
        position,
        record.store_timestamp_ms,
        due_ms,
        resolved,
        record.unique_key,
        record.property_value(PropertyName.REAL_TOPIC),
    )


def _immunity_ms(record: Record) -> int:
    seconds = decimal(record.property_value(PropertyName.CHECK_IMMUNITY_TIME_IN_SECONDS))
    return _CHECKED_AFTER_MS if seconds is None or seconds >= 10**9 else seconds * 1_000


def _committed(table: Mapping[str, object], topic: str, queue_id: int) -> int:
    offsets = table.get(f"{topic}@{_TRANSACTIONS}")
    return _number(offsets.get(str(queue_id)) if isinstance(offsets, dict) else None)


def _number(value: object) -> int:
    return min(value, INT64_MAX) if type(value) is int and value > 0 else 0
