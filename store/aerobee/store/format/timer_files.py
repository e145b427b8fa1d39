"""Makes the timer's files from the waiting messages, and reads the waiting messages from its files.

Files are written by a stopping broker: they look as if Apache's timer had taken in, at that moment,
exactly the messages that still wait, to deliver them from then on.

   timerlog/            a record for each, in the order of the timer topic's queue
   timerwheel           the slots of the coming days, each with its first and last record
   config/timercheck    read the wheel from the earliest slot, the queue from its end

Apache's broker continues reading the queue after the message that the log's last record names. If
that message has been delivered or recalled, a record for it is still written, in the slot before
the earliest one, which is never read again. So no message is taken in twice.

Messages too far in the future for the wheel get a slot from which they are put into the topic again
(a roll), as Apache's timer does. Overdue messages keep their slots, and thus their order, back to
one day.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from aerobee.store.format.delayed_records import PRECISION_MS
from aerobee.store.format.record_arrays import BoolArray, Int64Array
from aerobee.store.format.timer_checkpoint import TimerCheckpoint
from aerobee.store.format.timer_log import (
    MAGIC_BASE,
    MAGIC_DELETE,
    MAGIC_ROLL,
    TIMER_RECORD_DTYPE,
    TIMER_RECORD_SIZE,
    encode_end_mark,
    records_per_file,
    scan_timer_log,
)
from aerobee.store.format.timer_recovery import ReadFile
from aerobee.store.format.timer_wheel import NO_POSITION, SLOT_DTYPE, SLOTS_PER_WHEEL

TIMER_LOG_FILE_BYTES: Final = 100 * 1024 * 1024
"""Apache's default for `mappedFileSizeTimerLog`."""

ROLL_WINDOW_MS: Final = 172_800 * PRECISION_MS
"""Two days, Apache's default for `timerRollWindowSlot`: messages that wait longer are rolled."""

OVERDUE_SLOTS_MS: Final = 86_400 * PRECISION_MS
"""How far back slots go. Apache's broker drops slots that are older than a week when it starts,
which leaves it six days to start."""


@dataclass(frozen=True, slots=True)
class TimerRows:
    """Records of the timer topic, in queue order; one column per field.

    Positions are in the log; hashes are those of the target topics.
    """

    deliver_ms: Int64Array
    positions: Int64Array
    sizes: Int64Array
    topic_hashes: Int64Array
    queue_offsets: Int64Array
    is_delete: BoolArray

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def empty(cls) -> Self:
        none = np.zeros(0, np.int64)
        return cls(none, none, none, none, none, np.zeros(0, np.bool_))


@dataclass(frozen=True, slots=True)
class LastTimer:
    """The last record of the timer topic's queue, whatever happened to its message."""

    position: int
    size: int
    topic_hash: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class TimerFiles:
    """What a folder's timer files must contain; write the checkpoint last.

    Timer log files that are not among these must be deleted.
    """

    checkpoint: TimerCheckpoint
    slots: npt.NDArray[np.void]
    records: npt.NDArray[np.void]
    file_bytes: int

    @property
    def wheel(self) -> memoryview:
        """The whole file: 38,707,200 bytes, nearly all of them zero."""
        return self.slots.view(np.uint8).data

    def log_files(self) -> Iterator[tuple[int, bytes]]:
        """Position and content of each file; zeros fill it up to `file_bytes`."""
        per_file = records_per_file(self.file_bytes)
        count = len(self.records)
        for number, first in enumerate(range(0, count, per_file)):
            content = self.records[first : first + per_file].tobytes()
            if first + per_file < count:
                content += encode_end_mark(self.file_bytes - len(content))
            yield number * self.file_bytes, content


def timer_files(
    rows: TimerRows,
    last: LastTimer | None,
    *,
    now_ms: int,
    file_bytes: int = TIMER_LOG_FILE_BYTES,
    former: TimerCheckpoint | None = None,
) -> TimerFiles:
    """The files for the records that still wait.

    Args:
        rows: what waits, and requests to delete (Apache's recalls) that were not carried out.
        last: the last record of the queue; None if the queue never had any.
        former: the checkpoint before this one.

    Raises ValueError if the rows are not in order, or some come after `last`.
    """
    _check_order(rows, last)
    write_ms = now_ms // PRECISION_MS * PRECISION_MS
    slots_ms = (rows.deliver_ms - 1) // PRECISION_MS * PRECISION_MS
    slots_ms = np.maximum(slots_ms, write_ms - OVERDUE_SLOTS_MS)
    beyond_ms = slots_ms - write_ms - ROLL_WINDOW_MS
    is_rolled = beyond_ms >= 0
    # If the last part would be too short, it is divided into two.
    next_roll_ms = np.where(beyond_ms < ROLL_WINDOW_MS // 3, ROLL_WINDOW_MS // 2, ROLL_WINDOW_MS)
    slots_ms = np.where(is_rolled, write_ms + next_roll_ms, slots_ms)
    read_ms = min(write_ms, int(slots_ms.min())) if len(rows) else write_ms

    count = len(rows)
    is_last_done = last is not None and (not count or int(rows.positions[-1]) != last.position)
    records = np.zeros(count + is_last_done, TIMER_RECORD_DTYPE)
    waiting = records[:count]
    waiting["magic"] = MAGIC_BASE + is_rolled * MAGIC_ROLL + rows.is_delete * MAGIC_DELETE
    waiting["commit_offset"] = rows.positions
    waiting["size"] = rows.sizes
    waiting["topic_hash"] = rows.topic_hashes
    if last is not None and is_last_done:
        done = records[count:]
        done["magic"] = MAGIC_BASE
        done["commit_offset"], done["size"] = last.position, last.size
        done["topic_hash"] = last.topic_hash
        slots_ms = np.append(slots_ms, read_ms - PRECISION_MS)
    records["record_size"] = TIMER_RECORD_SIZE
    records["write_time_ms"] = write_ms
    records["delay_ms"] = slots_ms - write_ms

    positions = _positions(len(records), file_bytes)
    slots = _chain(records, slots_ms, positions)
    queue_end = 0 if last is None else last.queue_offset + 1
    checkpoint = TimerCheckpoint(
        last_read_time_ms=read_ms,
        last_log_flushed_position=int(positions[-1]) + TIMER_RECORD_SIZE if len(positions) else 0,
        last_queue_offset=queue_end,
        master_queue_offset=queue_end,
        state_version=0 if former is None else former.state_version,
        changed_ms=now_ms,
        counter=1 if former is None else former.counter + 1,
    )
    return TimerFiles(checkpoint, slots, records, file_bytes)


def _check_order(rows: TimerRows, last: LastTimer | None) -> None:
    if not len(rows):
        return
    if not (np.diff(rows.queue_offsets) > 0).all() or not (np.diff(rows.positions) > 0).all():
        raise ValueError("the waiting timer records are not in the order of their queue")
    if last is None or int(rows.queue_offsets[-1]) > last.queue_offset:
        raise ValueError("a waiting timer record comes after the last one of its queue")


def _positions(count: int, file_bytes: int) -> Int64Array:
    """Where each record is in the timer log."""
    per_file = records_per_file(file_bytes)
    if per_file < 1:
        raise ValueError(f"a timer log file of {file_bytes} bytes holds no record")
    numbers = np.arange(count)
    return numbers // per_file * file_bytes + numbers % per_file * TIMER_RECORD_SIZE


def _chain(
    records: npt.NDArray[np.void], slots_ms: Int64Array, positions: Int64Array
) -> npt.NDArray[np.void]:
    """Link each record to the previous one in its slot; returns the wheel."""
    wheel = np.zeros(SLOTS_PER_WHEEL, SLOT_DTYPE)
    order = np.argsort(slots_ms, kind="stable")
    in_order = slots_ms[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = in_order[1:] != in_order[:-1]
    previous = np.full(len(order), NO_POSITION)
    previous[1:] = np.where(begins[1:], NO_POSITION, positions[order[:-1]])
    records["previous_position"][order] = previous

    firsts = np.flatnonzero(begins)
    if len(firsts):
        lasts = np.append(firsts[1:], len(order)) - 1
        counts = np.where(records["magic"][order] & MAGIC_DELETE, -1, 1)
        units = in_order[firsts] // PRECISION_MS
        used = units % SLOTS_PER_WHEEL
        for name, values in (
            ("unit", units),
            ("first", positions[order[firsts]]),
            ("last", positions[order[lasts]]),
            ("count", np.add.reduceat(counts, firsts)),
        ):
            wheel[name][used] = values
    return wheel


# ------------------------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class TimersInWheel:
    """What Apache's timer had taken in and not yet delivered; one column per field.

    `slots_ms` are the times at which the wheel would deliver them: TIMER_OUT_MS, or an earlier time
    for what is rolled. Each record of the commit log appears once, in log order.
    """

    slots_ms: Int64Array
    positions: Int64Array
    sizes: Int64Array
    topic_hashes: Int64Array
    is_rolled: BoolArray
    is_delete: BoolArray

    def __len__(self) -> int:
        return len(self.positions)


def timers_in_wheel(
    log: Mapping[int, ReadFile], *, read_time_ms: int, log_begin: int = 0
) -> TimersInWheel:
    """Read from the timer log's files, given by the position of their first byte.

    `read_time_ms` is the checkpoint's; `log_begin` the first position of the commit log: anything
    before it is gone. What the timer had not taken in yet follows in the queue, from the offset
    given by aerobee.store.format.timer_recovery.
    """
    found = [np.zeros(0, TIMER_RECORD_DTYPE)]
    for base in sorted(log):
        scan = scan_timer_log(log[base]())
        times_ms = scan.records["write_time_ms"].astype(np.int64) + scan.records["delay_ms"]
        waits = (times_ms >= read_time_ms) & (scan.records["commit_offset"] >= log_begin)
        found.append(scan.records[waits])
        if not scan.is_full:
            break
    records = np.concatenate(found)
    # A new master reads some of the queue again: the later record counts.
    positions = records["commit_offset"].astype(np.int64)
    _, from_the_end = np.unique(positions[::-1], return_index=True)
    records = records[len(positions) - 1 - from_the_end]
    return TimersInWheel(
        slots_ms=records["write_time_ms"].astype(np.int64) + records["delay_ms"],
        positions=records["commit_offset"].astype(np.int64),
        sizes=records["size"].astype(np.int64),
        topic_hashes=records["topic_hash"].astype(np.int64),
        is_rolled=(records["magic"] & MAGIC_ROLL) != 0,
        is_delete=(records["magic"] & MAGIC_DELETE) != 0,
    )
