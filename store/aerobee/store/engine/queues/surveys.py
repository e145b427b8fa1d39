"""What an audit asks about many queues: when messages were stored, how many match a filter.

Each is a work that holds what it needs of the queues at one moment, to run on any thread. What
cannot be read or is not as expected counts as unknown, without an error, because one damaged queue
must not hide all others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aerobee.runtime.errors import AerobeeError
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.log.commit_log import CommitLog
from aerobee.store.engine.queues.queue_set import QueueSet
from aerobee.store.engine.queues.reading import Filter, Int64Array
from aerobee.store.engine.queues.record_match import RecordCheck
from aerobee.store.format.consume_queue_entry import (
    ENTRY_SIZE,
    PRE_BLANK_SIZE,
    unpack_entries,
    unpack_entry,
)
from aerobee.store.format.consume_queue_ext import EXT_ADDRESS_MAX
from aerobee.store.format.record import Record
from aerobee.store.format.record_layout import (
    HOST_V6_EXTRA,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
    RecordCorrupt,
)

UNKNOWN = -1
COUNTED_ENTRIES = 65_536
"""How many entries one `MatchingCount` examines."""

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_HEAD_BYTES = STORE_HOST_AT + HOST_V6_EXTRA


class TimeSurvey:
    """Store times of single messages. [loop] `add` them, then call `run`."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._wanted: list[int | Callable[[], bytes]] = []

    def __len__(self) -> int:
        return len(self._wanted)

    def add(self, wanted: int | Callable[[], bytes]) -> None:
        """The message at a log position, or of an entry that has yet to be read."""
        self._wanted.append(wanted)

    def run(self) -> list[int]:
        """[any thread] Unix ms in the order of `add`; UNKNOWN if there is no message."""
        return [self._time(wanted) for wanted in self._wanted]

    def _time(self, wanted: int | Callable[[], bytes]) -> int:
        try:
            if isinstance(wanted, int):
                position = wanted
            else:
                entry = wanted()
                if len(entry) != ENTRY_SIZE:
                    return UNKNOWN
                position, size, _ = unpack_entry(entry)
                if size == PRE_BLANK_SIZE:
                    return UNKNOWN
            head = self._log.read(((position, _HEAD_BYTES),))
        except (AerobeeError, OSError):
            return UNKNOWN
        return _store_timestamp_ms(head, position)


@dataclass(frozen=True, slots=True)
class Counted:
    """How many of the entries match by their tags codes; `positions` and `sizes` locate the records
    that must be evaluated because their entries do not decide."""

    matching: int
    positions: Int64Array
    sizes: Int64Array


class MatchingCount:
    """Counts how many of some entries of a queue may match a filter."""

    def __init__(self, load: Callable[[], bytes], count: int, filter: Filter) -> None:
        self._load = load
        self._count = count
        self._filter = filter

    def run(self) -> Counted | None:
        """[any thread] None if they cannot be read."""
        try:
            data = self._load()
        except (AerobeeError, OSError):
            return None
        if len(data) != self._count * ENTRY_SIZE:
            return None
        positions, sizes, tags_codes = unpack_entries(data)
        may_match = (sizes > 0) & (sizes != PRE_BLANK_SIZE)
        may_match &= self._filter.may_match(tags_codes)
        if self._filter.judged_max is None:
            unsure = may_match & (tags_codes <= EXT_ADDRESS_MAX)  # the code is elsewhere
        else:
            unsure = may_match
        matching = int(np.count_nonzero(may_match)) - int(np.count_nonzero(unsure))
        return Counted(matching, positions[unsure], sizes[unsure])


class JudgedCount:
    """Counts how many of some records of a queue match a filter."""

    def __init__(
        self,
        log: CommitLog,
        check: RecordCheck,
        filter: Filter,
        positions: Int64Array,
        sizes: Int64Array,
    ) -> None:
        self._log = log
        self._check = check
        self._filter = filter
        self._positions = positions
        self._sizes = sizes

    def run(self) -> int:
        """[any thread] UNKNOWN if they cannot be read, or do not match their entries."""
        sizes = self._sizes.tolist()
        try:
            records = self._log.read(list(zip(self._positions.tolist(), sizes, strict=True)))
            self._check.check_records(records, self._positions, self._sizes)
            matching = start = 0
            for size in sizes:
                matching += self._filter.verdict(Record(records, start, start + size))[0]
                start += size
        except (AerobeeError, OSError, RecordCorrupt):
            return UNKNOWN
        return matching


class Surveys:
    """Makes these works; on the loop."""

    def __init__(self, disk: Disk, log: CommitLog, queues: QueueSet) -> None:
        self._disk = disk
        self._log = log
        self._queues = queues

    def times(self) -> TimeSurvey:
        return TimeSurvey(self._log)

    def entry(self, topic: str, queue_id: int, offset: int) -> Callable[[], bytes] | None:
        """How to read the entry of a message; None if the queue has none."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.end:
            return None
        return queue.plan_read(self._disk, offset, 1).run

    def count_matching(
        self, topic: str, queue_id: int, offset: int, count: int, filter: Filter
    ) -> MatchingCount | None:
        """For entries [offset, offset + count); None unless the queue has all of them."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= offset <= offset + count <= queue.end:
            return None
        return MatchingCount(queue.plan_read(self._disk, offset, count).run, count, filter)

    def judge(
        self, topic: str, queue_id: int, filter: Filter, positions: Int64Array, sizes: Int64Array
    ) -> JudgedCount:
        """For records of a queue."""
        return JudgedCount(self._log, RecordCheck(topic, queue_id), filter, positions, sizes)


def _store_timestamp_ms(head: bytes, position: int) -> int:
    """The store time of the record that should begin at `position`."""
    if (
        len(head) != _HEAD_BYTES
        or _I32.unpack_from(head, MAGIC_AT)[0] not in (MAGIC_V1, MAGIC_V2)
        or _I64.unpack_from(head, PHYSICAL_OFFSET_AT)[0] != position
    ):
        return UNKNOWN
    (sys_flag,) = _I32.unpack_from(head, SYS_FLAG_AT)
    at = STORE_TIMESTAMP_AT + (HOST_V6_EXTRA if sys_flag & SYSFLAG_BORN_HOST_V6 else 0)
    timestamp_ms: int = _I64.unpack_from(head, at)[0]
    return timestamp_ms
