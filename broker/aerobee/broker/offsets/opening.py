"""The groups' offsets of a folder when it is opened, and before its log begins anew.

Owns: what the table says where it and the log disagree, because a power failure cut the log or
something else changed the table. Blocks on the disk.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from aerobee.broker.journal.log import JOURNAL_QUEUE
from aerobee.broker.journal.records import UNKNOWN_IMAGE
from aerobee.broker.offsets.entries import JOURNAL_TOPIC
from aerobee.broker.offsets.state import cut_mark
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import log_event
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    ConsumerOffsetTable,
    TopicTable,
)
from aerobee.store.engine.tables.consumer_offset_table import JournalMark
from aerobee.store.flush.table_files import load_table
from aerobee.store.format.consume_queue_entry import unpack_entries

log = logging.getLogger(__name__)


def open_offsets(disk: Disk, store: MessageStore) -> ConsumerOffsetTable:
    """The table, as its file or the journal has it. Raises StoreUnusable, OSError."""
    offsets = load_table(
        disk,
        CONSUMER_OFFSETS_PATH,
        ConsumerOffsetTable,
        # The journal repeats it all, unless there is none, as in a folder from Apache's broker.
        is_known_elsewhere=_journal_end(store) > 0,
    )
    if not offsets.is_as_written:
        _doubt_offsets(store, offsets)
    return offsets


def forget_offsets(disk: Disk, position: int) -> None:
    """Called before a closed folder's log restarts at `position`: the groups' offsets are void, and
    come back from the journal in the copied log. Blocks.

    Raises StoreUnusable, OSError.
    """
    offsets = load_table(disk, CONSUMER_OFFSETS_PATH, ConsumerOffsetTable, is_known_elsewhere=True)
    # A journal read from its first record on has everything; otherwise an image is needed.
    is_whole = position == 0
    offsets.forget(JournalMark(0, 0 if is_whole else UNKNOWN_IMAGE, is_whole))
    # Twice: the backup is used when the file cannot be read.
    for _ in range(2):
        replace_atomically(disk, CONSUMER_OFFSETS_PATH, offsets.snapshot_bytes(0))


def _journal_end(store: MessageStore) -> int:
    return store.queues.bounds(JOURNAL_TOPIC, JOURNAL_QUEUE).max_offset


def _doubt_offsets(store: MessageStore, offsets: ConsumerOffsetTable) -> None:
    """Something else has changed the table's file: a group that it lacks would begin again, so the
    journal decides, from its newest image on."""
    end, mark = _journal_end(store), offsets.mark
    if mark is None or not end:
        return
    first = store.queues.bounds(JOURNAL_TOPIC, JOURNAL_QUEUE).min_offset
    begin, is_whole = first, mark.is_whole and first == 0
    if mark.image_position > 0:
        numbers = range(first, end)
        begin = first + bisect_left(
            numbers, mark.image_position, key=lambda number: _journal_position(store, number)
        )
        is_whole = False
    log_event(
        log,
        "the table of offsets is not as it was written: it was changed by something else; what it "
        "lacks is taken from the offset journal",
        level=logging.ERROR,
        path=CONSUMER_OFFSETS_PATH,
        first_record=begin,
        records=end - begin,
    )
    image_position = mark.image_position if is_whole else UNKNOWN_IMAGE
    offsets.doubt(
        replace(
            mark,
            next_offset=begin,
            image_position=image_position,
            is_whole=is_whole,
            open_copies=(),
        ),
        end,
    )


def _journal_position(store: MessageStore, number: int) -> int:
    entry = store.queues.read_entries(JOURNAL_TOPIC, JOURNAL_QUEUE, number, 1)
    return int(unpack_entries(entry)[0][0])


def cut_to_queues(
    offsets: ConsumerOffsetTable,
    end_of: Callable[[str, int], int | None],
    *,
    journal_end: int,
    is_whole_log: bool,
) -> list[tuple[str, str, int, int]]:
    """Lower every offset that is after its queue's end, which `end_of` knows, or does not (None).
    Returns what was lowered: group, topic, queue and end. `is_whole_log`: the log has its first
    byte."""
    is_known = offsets.mark is not None and offsets.mark.next_offset <= journal_end
    may_be_unknown = is_known and not is_whole_log
    ahead = [
        (group, topic, queue_id, end)
        for group in offsets.groups()
        for topic, queues in offsets.of_group(group).items()
        for queue_id, offset in queues.items()
        if (end := end_of(topic, queue_id)) is not None
        and offset > end
        and (end or not may_be_unknown)
    ]
    for group, topic, queue_id, end in ahead:
        offsets.commit(group, topic, queue_id, end)
    return ahead


def cut_offsets(
    disk: Disk,
    store: MessageStore,
    topics: TopicTable,
    offsets: ConsumerOffsetTable,
    clock: Clock,
) -> None:
    """A group must not be ahead of its queue: a power failure may have lost messages that it
    consumed before they were flushed, and the next messages will get their offsets.

    Queues kept here but not served are left to the broker that serves them. If all messages of a
    queue are before the beginning of this log, its end may be unknown here; its offsets come from
    the journal in the log."""

    def end_of(topic: str, queue_id: int) -> int | None:
        if (config := topics.get(topic)) is not None and config.has_batch_queues:
            return None
        return store.queues.bounds(topic, queue_id).max_offset

    ahead = cut_to_queues(
        offsets, end_of, journal_end=_journal_end(store), is_whole_log=store.min_offset == 0
    )
    for group, topic, queue_id, queue_max in ahead:
        log_event(
            log,
            "offset cut to the end of its queue",
            level=logging.WARNING,
            group=group,
            topic=topic,
            queue_id=queue_id,
            offset=queue_max,
        )
    is_mark_cut = cut_mark(offsets, _journal_end(store))
    if ahead or is_mark_cut:
        # Twice: the backup is used when the file cannot be read.
        for _ in range(2):
            replace_atomically(disk, CONSUMER_OFFSETS_PATH, offsets.snapshot_bytes(clock.now_ms()))
