"""What waits when this broker stops, gathered for Apache's broker.

Owns: nothing. The journal's confirmed records say what is done; if not all of them are applied
here, or an intent is open, nothing is gathered: files that claim too much would lose a message.
"""

from __future__ import annotations

from aerobee.broker.delayed.apache_handover import WaitsOn
from aerobee.broker.delayed.feeder import Feeder
from aerobee.broker.delayed.finder import Finder
from aerobee.broker.delayed.waiting_log import WaitingLog
from aerobee.broker.timers.entries import TIMER_QUEUE
from aerobee.broker.timers.pending import FIRST, LAST, BoolArray, Rows
from aerobee.broker.timers.record_rows import REQUEST_DUE_MS
from aerobee.broker.timers.state import TimerJournalState
from aerobee.runtime.clock import Clock
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.record_view import Record
from aerobee.store.format.timer_files import LastTimer, TimerRows

ALL_ROWS = 1 << 40


async def gather(
    state: TimerJournalState,
    feeder: Feeder,
    finder: Finder,
    waiting: WaitingLog,
    clock: Clock,
    *,
    journal_end: int,
) -> WaitsOn | None:
    """None: not known for certain. Raises AerobeeError."""
    progress = state.progress
    is_known = state.is_whole and state.next_offset == journal_end and progress.open is None
    timers_end = waiting.timers_end
    if not is_known or feeder.index.fed_end < timers_end:
        return None
    last = None
    if timers_end:
        entry = await waiting.entries(TIMER_QUEUE, timers_end - 1, 1)
        if not len(entry):
            return None
        position, size = int(entry.positions[0]), int(entry.sizes[0])
        last = LastTimer(position, size, await _topic_hash(waiting, position, size), timers_end - 1)
    floors = {
        level: max(progress.of(level).floor, waiting.bounds(level).min_offset)
        for level in feeder.levels
        if waiting.bounds(level).max_offset
    }
    return WaitsOn(await _rows(finder, waiting), last, floors, clock.now_ms())


async def _rows(finder: Finder, waiting: WaitingLog) -> TimerRows:
    rows = await finder.search(FIRST, LAST, limit=ALL_ROWS, accepts=_any)
    rows = rows[rows["offset"].argsort()]
    deliver_ms = rows["due_ms"].copy()
    is_request = deliver_ms == REQUEST_DUE_MS
    for at in is_request.nonzero()[0].tolist():
        data = await waiting.pieces((int(rows["position"][at]),), (int(rows["size"][at]),))
        slot = Record(data[0]).property_value("TIMER_OUT_MS") or ""
        deliver_ms[at] = int(slot) + 1 if slot.isdigit() else 1
    return TimerRows(
        deliver_ms=deliver_ms,
        positions=rows["position"].copy(),
        sizes=rows["size"].astype("int64"),
        topic_hashes=rows["topic_hash"].astype("int64"),
        queue_offsets=rows["offset"].copy(),
        is_delete=is_request,
    )


def _any(rows: Rows) -> BoolArray:
    accepted: BoolArray = rows["due_ms"] >= 0
    return accepted


async def _topic_hash(waiting: WaitingLog, position: int, size: int) -> int:
    (data,) = await waiting.pieces((position,), (size,))
    return java_string_hash(Record(data).property_value("REAL_TOPIC") or "")
