"""Opening a broker's folder, and what is done to it while it is closed.

    the store, the tables beside it, the number of this run, what each feature has
    -> who this run of the replica is

Owns: the work that blocks on the disk before anything is served or between two runs; all of it runs
on a thread. What opening returns belongs to the loop from then on.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aerobee.broker.config import BrokerConfig
from aerobee.broker.features import Kind
from aerobee.broker.groups.run_record import (
    FIRST_RECORD,
    LEASES_PATH,
    RunRecord,
    begun_record,
    known_by_backup,
    next_run,
)
from aerobee.broker.offsets.opening import cut_offsets, open_offsets
from aerobee.broker.opened import Opened, OpenedFolder
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
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    SubscriptionGroupTable,
    TopicTable,
)
from aerobee.store.flush.table_files import load_table

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 1.0


def open_replicated(
    config: BrokerConfig,
    store_config: StoreConfig,
    disk: Disk,
    clock: Clock,
    chance: random.Random,
    features: Sequence[Kind[Any]],
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
        features,
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
    features: Sequence[Kind[Any]],
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
                for feature in features:
                    feature.forget_end(disk)
                cut_log(disk, config, end, on_step)
                note_log_cut(disk, end)
            case BeginAnew(position):
                # From now on the empty log must not be mistaken for this one.
                note_log_emptied(disk, chance)
                for feature in features:
                    feature.forget(disk, position)
                begin_log_at(disk, config, position, on_step)
    except (StoreUnusable, OSError) as error:
        raise InvalidArgument(f"the log could not be changed: {error}") from error


def open_folder(
    disk: Disk,
    clock: Clock,
    config: StoreConfig,
    features: Sequence[Kind[Any]],
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
        opened = _load(disk, store, clock, config, features, boot_id, session_timeout_max_ms)
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
    features: Sequence[Kind[Any]],
    boot_id: str,
    session_timeout_max_ms: int,
) -> OpenedFolder:
    try:
        topics = load_table(disk, TOPICS_PATH, TopicTable)
        groups = load_table(disk, SUBSCRIPTION_GROUPS_PATH, SubscriptionGroupTable)
        offsets = open_offsets(disk, store)
        previous = _previous_run(disk, session_timeout_max_ms)
        cut_offsets(disk, store, topics, offsets, clock)
        this_run = next_run(previous, boot_id)
        replace_atomically(disk, LEASES_PATH, begun_record(previous, this_run).encode())
        found = {feature: feature.open(disk, store, config) for feature in features}
    except StoreUnusable as error:
        raise InvalidArgument(str(error)) from error
    except OSError as error:
        raise InvalidArgument(
            f"the folder {disk} cannot be used: {error.strerror or error}; check its permissions "
            "and the space on its disk"
        ) from error
    return OpenedFolder(store, topics, groups, offsets, found, previous, this_run)


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
