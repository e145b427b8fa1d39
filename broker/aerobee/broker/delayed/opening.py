"""The delayed messages of a folder when it is opened: what is done, and the index.

Owns: the work that blocks on the disk before anything is appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.broker.delayed.apache_files import (
    TakenOver,
    forget_apache_files,
    read_apache_files,
)
from aerobee.broker.delayed.waiting_log import queue_name
from aerobee.broker.journal.log import JOURNAL_QUEUE
from aerobee.broker.journal.state_file import forget_state, load_state
from aerobee.broker.timers.entries import TIMER_JOURNAL_TOPIC, TIMER_QUEUE
from aerobee.broker.timers.index import IndexLimits, PendingIndex, open_index, reset_index
from aerobee.broker.timers.index_works import MANIFEST
from aerobee.broker.timers.level_window import LevelWindow
from aerobee.broker.timers.state import PROGRESS_PATH, TimerJournalState, file_reader
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.tags import SCHEDULE_TOPIC


@dataclass(frozen=True, slots=True)
class OpenedDelays:
    """`levels`: the windows by level. `taken_over`: what Apache's broker did meanwhile, if it used
    the folder."""

    state: TimerJournalState
    index: PendingIndex
    levels: dict[int, LevelWindow]
    taken_over: TakenOver | None


def open_delays(disk: Disk, store: MessageStore, levels_ms: Sequence[int]) -> OpenedDelays:
    """Blocks. Raises OSError."""
    journal_end = store.queues.bounds(TIMER_JOURNAL_TOPIC, JOURNAL_QUEUE).max_offset
    state = load_state(disk, PROGRESS_PATH, file_reader(journal_end)) or TimerJournalState()
    timers = store.queues.bounds(*queue_name(TIMER_QUEUE))
    index = open_index(
        disk,
        begin=max(timers.min_offset, state.progress.of(TIMER_QUEUE).floor),
        queue_end=timers.max_offset,
        journal_end=journal_end,
    )
    levels = DelayLevels(tuple(levels_ms))
    # A folder taken over from Apache's broker may have queues for more levels.
    used = [queue_id + 1 for topic, queue_id in store.queues.names() if topic == SCHEDULE_TOPIC]
    windows = {
        level: LevelWindow(level, levels.delay_ms(level), begin=_level_begin(store, state, level))
        for level in range(1, max(len(levels), *used, 0) + 1)
    }
    return OpenedDelays(state, index, windows, read_apache_files(disk, store))


def _level_begin(store: MessageStore, state: TimerJournalState, level: int) -> int:
    return max(store.queues.bounds(*queue_name(level)).min_offset, state.progress.of(level).floor)


def forget_delays(disk: Disk) -> None:
    """Called before a closed folder's log restarts: what was known of delayed messages is void, and
    comes back from the journal in the copied log. Blocks; raises OSError."""
    forget_state(disk, PROGRESS_PATH)
    forget_apache_files(disk)
    if disk.exists(MANIFEST):
        reset_index(disk, begin=0, limits=IndexLimits())
