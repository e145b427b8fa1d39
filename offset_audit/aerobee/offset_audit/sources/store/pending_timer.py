"""Timer messages that were not delivered yet: what Apache's timer log and checkpoint say of them.

The log has a record for each message that was put into the wheel: where it lies, and its slot's
time. Slots below the checkpoint's read time were delivered. A record that deletes stands in the
slot of what it deletes. Messages that the timer has not taken from its topic yet are in no slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.log_lookup import LogLookup
from aerobee.offset_audit.sources.store.plain_values import decimal
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts
from aerobee.store_format.names import is_file_name
from aerobee.store_format.properties import PropertyName
from aerobee.store_format.record_view import Record
from aerobee.store_format.timer_checkpoint import TimerCheckpoint, TimerCheckpointIllegal
from aerobee.store_format.timer_log import MAGIC_DELETE, scan_timer_log

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

_LOG_FOLDER: Final = "timerlog"
_CHECKPOINT: Final = "config/timercheck"


@dataclass(frozen=True, slots=True)
class _Slotted:
    """A message in the wheel."""

    position: int
    slot_ms: int


class PendingTimers:
    """Reads the timer's files at birth."""

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

    def messages(self, not_yet: Iterable[int]) -> Iterator[tuple[int, Record | None, int, bool]]:
        """(position, record, due time, whether it was recalled) of each that waits.

        `not_yet` are positions of messages that are in no slot yet.
        """
        fresh: list[tuple[int, Record]] = []
        deleted = {key for at in self._deletes for key in _deletes(self._lookup.record_at(at))}
        for position in not_yet:
            record = self._lookup.record_at(position)
            if record is None:
                continue
            deletes = _deletes(record)
            deleted.update(deletes)
            if not deletes:
                fresh.append((position, record))
        for one in self._waiting:
            found = self._lookup.record_at(one.position)
            yield one.position, found, _due_ms(found, one.slot_ms), _is_among(found, deleted)
        for position, record in fresh:
            due_ms = _due_ms(record, record.store_timestamp_ms)
            yield position, record, due_ms, _is_among(record, deleted)

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
        """Take in one file; the position of the last message that it names, -1 for none."""
        try:
            with open(file.path, "rb") as opened:
                records = scan_timer_log(opened.read()).records
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
        """The offset after that of the message at a position of the log."""
        record = self._lookup.record_at(position) if position >= 0 else None
        return 0 if record is None else record.queue_offset + 1


def _deletes(record: Record | None) -> tuple[str, ...]:
    """What a message deletes: a unique key, or topic and unique key; nothing if it is no such."""
    key = None if record is None else record.property_value(PropertyName.TIMER_DEL_UNIQKEY)
    return () if key is None else (key,)


def _is_among(record: Record | None, deleted: set[str]) -> bool:
    if record is None or not deleted or record.unique_key is None:
        return False
    topic = record.property_value(PropertyName.REAL_TOPIC) or ""
    return bool(deleted & {record.unique_key, f"{topic}+{record.unique_key}"})


def _due_ms(record: Record | None, otherwise_ms: int) -> int:
    text = None if record is None else record.property_value(PropertyName.TIMER_OUT_MS)
    due_ms = decimal(text)
    return otherwise_ms if due_ms is None else due_ms
