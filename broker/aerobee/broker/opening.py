"""Opening a broker's folder, and what is done to it while it is closed.

    the store, the tables beside it, the number of this run -> who this run of the replica is

Owns: the work that blocks on the disk before anything is served or between two runs; all of it runs
on a thread. What opening returns belongs to the loop from then on.
"""

from __future__ import annotations

import logging
import os
import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aerobee.broker.config import BrokerConfig
from aerobee.broker.delayed.apache_files import forget_apache_files
from aerobee.broker.delayed.opening import forget_delays, open_delays
from aerobee.broker.groups.run_record import (
    FIRST_RECORD,
    LEASES_PATH,
    RunRecord,
    begun_record,
    known_by_backup,
    next_run,
)
from aerobee.broker.journal.log import JOURNAL_QUEUE
from aerobee.broker.journal.records import UNKNOWN_IMAGE
from aerobee.broker.offsets.entries import JOURNAL_TOPIC
from aerobee.broker.offsets.state import cut_mark
from aerobee.broker.opened import Opened, OpenedFolder
from aerobee.broker.popping.opening import forget_pops, open_pops
from aerobee.broker.replication.joining import BeginAnew, Cut
from aerobee.broker.replication.replica_folder import (
    ReplicaIdentity,
    note_failed,
    note_incomplete,
    note_log_cut,
    note_log_emptied,
    note_log_repaired,
    open_replica,
)
from aerobee.broker.replication.state_file import FoundLog, NewIncarnation
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import InvalidArgument, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.runtime.machine import boot_id
from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.replicas.closed_log import begin_log_at, cut_log
from aerobee.store.engine.statistics import RecoveryProgress
from aerobee.store.engine.tables.atomic_file import (
    Source,
    read_with_backup,
    replace_atomically,
)
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    ConsumerOffsetTable,
    SubscriptionGroupTable,
    TopicTable,
)
from aerobee.store.engine.tables.consumer_offset_table import JournalMark
from aerobee.store.flush.table_files import load_table
from aerobee.store.format.consume_queue_entry import unpack_entries

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 1.0


def open_replicated(
    config: BrokerConfig,
    store_config: StoreConfig,
    disk: Disk,
    clock: Clock,
    chance: random.Random,
    on_progress: Callable[[RecoveryProgress], None] = lambda _: None,
) -> Opened:
    """Lock, recover and load the folder for a new instance; calls `on_progress` along the way.

    Raises:
        InvalidArgument: the folder cannot be used as it is; the message says why and what to do.
    """
    boot = boot_id()
    folder = open_folder(
        disk,
        clock,
        store_config,
        boot,
        session_timeout_max_ms=config.sessions.timeout_max_ms,
        on_progress=on_progress,
    )
    try:
        identity = ReplicaIdentity(
            broker_id=config.broker_id,
            has_nameservers=bool(config.nameservers),
            is_sync_flush=store_config.flush_mode is FlushMode.SYNC,
            cluster=config.cluster,
            broker_name=config.broker_name,
        )
        store = folder.store
        found = FoundLog(
            end=store.appended_end,
            is_clean=store.recovery.clean,
            boot_id=_boot_in_place(boot, config.store_root),
        )
        return Opened(folder, open_replica(disk, identity, found, chance))
    except BaseException:
        folder.store.close()
        raise


def close_replicated(disk: Disk, opened: Opened) -> None:
    """Close the folder's store. Blocks.

    Raises StoreFailed; the log may then lack something, and counts as another log from now on.
    """
    try:
        opened.folder.store.close()
    except StoreFailed:
        try:
            note_failed(disk)
        except (StoreUnusable, OSError) as error:
            log_event(log, "the failure could not be recorded", level=logging.ERROR, reason=error)
        raise


def _boot_in_place(boot: str, store_root: Path) -> str:
    """The machine's boot combined with the location of the folder: a copy of a folder in use must
    not be mistaken for the original, whose process may be alive and whose log may be longer."""
    place = os.stat(store_root)
    return boot and f"{boot}/{place.st_dev:x}:{place.st_ino:x}"


def change_log(
    disk: Disk,
    config: StoreConfig,
    change: Cut | BeginAnew | NewIncarnation | None,
    chance: random.Random,
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """Change a closed folder as its replica must before it can follow or register; `on_step` is
    called as it progresses.

    Raises:
        InvalidArgument: the disk failed; the next start of the broker continues where this ended.
    """
    try:
        match change:
            case NewIncarnation():
                note_incomplete(disk)
            case Cut(end, is_unclean):
                if is_unclean:
                    # It may permanently lose what it was known to have.
                    note_log_repaired(disk, chance)
                # They may describe what is cut.
                forget_apache_files(disk)
                cut_log(disk, config, end, on_step)
                note_log_cut(disk, end)
            case BeginAnew(position):
                # From now on the empty log must not be mistaken for this one.
                note_log_emptied(disk, chance)
                forget_offsets(disk, position)
                forget_delays(disk)
                forget_pops(disk)
                begin_log_at(disk, config, position, on_step)
    except (StoreUnusable, OSError) as error:
        raise InvalidArgument(f"the log could not be changed: {error}") from error


def open_folder(
    disk: Disk,
    clock: Clock,
    config: StoreConfig,
    boot_id: str = "",
    *,
    session_timeout_max_ms: int = 120_000,
    on_progress: Callable[[RecoveryProgress], None] = lambda _: None,
) -> OpenedFolder:
    """Lock and recover the folder, load its tables, begin the next run. Blocks.

    `boot_id` identifies the machine's boot, so that a power failure can be distinguished from a
    crash. `session_timeout_max_ms` is the longest allowed session of a member. `on_progress` is
    called on this thread as work progresses.

    Raises:
        InvalidArgument: the folder cannot be used as it is; the message says why and what to do.
    """
    began_s = clock.monotonic_s()
    progress_log = _ProgressLog(clock)

    def tell(progress: RecoveryProgress) -> None:
        progress_log(progress)
        on_progress(progress)

    try:
        store = MessageStore.open(disk, clock, config, on_progress=tell)
    except StoreUnusable as error:
        raise InvalidArgument(str(error)) from error
    try:
        opened = _load(disk, store, clock, config, boot_id, session_timeout_max_ms)
    except BaseException:
        store.close()
        raise
    report = store.recovery
    log_event(
        log,
        "store opened",
        clean=report.clean,
        end=report.end,
        scanned_bytes=report.scanned_bytes,
        cut_bytes=report.cut_bytes,
        rebuilt_queues=len(report.rebuilt_queues),
        topics=len(opened.topics),
        run=opened.this_run.run_number,
        seconds=f"{clock.monotonic_s() - began_s:.3f}",
    )
    for warning in report.warnings:
        log_event(log, "recovery warning", level=logging.WARNING, warning=warning)
    return opened


def _load(
    disk: Disk,
    store: MessageStore,
    clock: Clock,
    config: StoreConfig,
    boot_id: str,
    session_timeout_max_ms: int,
) -> OpenedFolder:
    try:
        topics = load_table(disk, TOPICS_PATH, TopicTable)
        groups = load_table(disk, SUBSCRIPTION_GROUPS_PATH, SubscriptionGroupTable)
        offsets = load_table(
            disk,
            CONSUMER_OFFSETS_PATH,
            ConsumerOffsetTable,
            # The journal repeats it all, unless there is none, as in a folder from Apache's broker.
            is_known_elsewhere=_journal_end(store) > 0,
        )
        if not offsets.is_as_written:
            _doubt_offsets(store, offsets)
        previous = _previous_run(disk, session_timeout_max_ms)
        _cut_offsets(disk, store, topics, offsets, clock)
        this_run = next_run(previous, boot_id)
        replace_atomically(disk, LEASES_PATH, begun_record(previous, this_run).encode())
        delays = open_delays(disk, store, config.delay_levels_ms)
        pops = open_pops(disk, store)
    except StoreUnusable as error:
        raise InvalidArgument(str(error)) from error
    except OSError as error:
        raise InvalidArgument(
            f"the folder {disk} cannot be used: {error.strerror or error}; check its permissions "
            "and the space on its disk"
        ) from error
    return OpenedFolder(store, topics, groups, offsets, delays, pops, previous, this_run)


def _previous_run(disk: Disk, session_timeout_max_ms: int) -> RunRecord:
    loaded = read_with_backup(disk, LEASES_PATH, RunRecord.decode)
    if loaded.value is None:
        return FIRST_RECORD
    if loaded.source is Source.FILE:
        return loaded.value
    log_event(
        log,
        "leases not read from their file: who held which queue is unknown",
        level=logging.WARNING,
        source=loaded.source,
        why=loaded.problem,
    )
    return known_by_backup(loaded.value, session_timeout_max_ms)


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


def _cut_offsets(
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
    is_known = offsets.mark is not None and offsets.mark.next_offset <= _journal_end(store)
    may_be_unknown = is_known and store.min_offset > 0
    ahead = [
        (group, topic, queue_id, queue_max)
        for group in offsets.groups()
        for topic, queues in offsets.of_group(group).items()
        if (config := topics.get(topic)) is None or not config.has_batch_queues
        for queue_id, offset in queues.items()
        if offset > (queue_max := store.queues.bounds(topic, queue_id).max_offset)
        and (queue_max or not may_be_unknown)
    ]
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
        offsets.commit(group, topic, queue_id, queue_max)
    is_mark_cut = cut_mark(offsets, _journal_end(store))
    if ahead or is_mark_cut:
        # Twice: the backup is used when the file cannot be read.
        for _ in range(2):
            replace_atomically(disk, CONSUMER_OFFSETS_PATH, offsets.snapshot_bytes(clock.now_ms()))


class _ProgressLog:
    """Logs recovery's progress, at most once a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_s = clock.monotonic_s() + PROGRESS_INTERVAL_S

    def __call__(self, progress: RecoveryProgress) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._next_s:
            self._next_s = now_s + PROGRESS_INTERVAL_S
            log_event(
                log,
                "recovering",
                bytes_done=progress.bytes_done,
                bytes_total=progress.bytes_total,
            )
