"""A replica's folder: opened as a whole, and changed while nobody has it open. All of it blocks."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aerobee.broker.config import BrokerConfig
from aerobee.broker.opening import OpenedFolder, forget_offsets, open_folder
from aerobee.broker.replication.joining import BeginAnew, Cut
from aerobee.broker.replication.replica_folder import (
    OpenedReplica,
    ReplicaIdentity,
    note_failed,
    note_incomplete,
    note_log_cut,
    note_log_emptied,
    note_log_repaired,
    open_replica,
)
from aerobee.broker.replication.state_file import FoundLog, NewIncarnation
from aerobee.broker.store.config import FlushMode, StoreConfig
from aerobee.broker.store.disk import Disk
from aerobee.broker.store.errors import StoreUnusable
from aerobee.broker.store.replicas.closed_log import begin_log_at, cut_log
from aerobee.broker.store.statistics import RecoveryProgress
from aerobee.runtime.boot import boot_id
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import InvalidArgument, StoreFailed
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """The folder's content, and who this run of the replica is."""

    folder: OpenedFolder
    replica: OpenedReplica


def open_replicated(
    config: BrokerConfig,
    store_config: StoreConfig,
    disk: Disk,
    clock: Clock,
    chance: random.Random,
    on_progress: Callable[[RecoveryProgress], None] = lambda _: None,
) -> Opened:
    """Lock, recover and load the folder, for a new instance; `on_progress` is told that it gets on.

    Raises:
        InvalidArgument: it cannot be used as it lies; the message says why and what to do.
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

    Raises StoreFailed; then the log may lack something, and counts as another one from now on.
    """
    try:
        opened.folder.store.close()
    except StoreFailed:
        try:
            note_failed(disk)
        except (StoreUnusable, OSError) as error:
            log_event(log, "the failure is not noted", level=logging.ERROR, reason=error)
        raise


def _boot_in_place(boot: str, store_root: Path) -> str:
    """The machine's start together with the place of the folder itself: a copy of a folder that is
    in use must not pass for that one, whose process may live and whose log may be longer."""
    place = os.stat(store_root)
    return boot and f"{boot}/{place.st_dev:x}:{place.st_ino:x}"


def change_log(
    disk: Disk,
    config: StoreConfig,
    change: Cut | BeginAnew | NewIncarnation | None,
    chance: random.Random,
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """Do to a closed folder what its replica must do before it can follow, or register;
    `on_step` is told that it gets on.

    Raises:
        InvalidArgument: the disk failed; the next start of the broker begins where this ended.
    """
    try:
        match change:
            case NewIncarnation():
                note_incomplete(disk)
            case Cut(end, is_unclean):
                if is_unclean:
                    # It may lose what it was known to have for ever.
                    note_log_repaired(disk, chance)
                cut_log(disk, config, end, on_step)
                note_log_cut(disk, end)
            case BeginAnew(position):
                # Whoever looks for this log from now on must not take the empty one for it.
                note_log_emptied(disk, chance)
                forget_offsets(disk, position)
                begin_log_at(disk, config, position, on_step)
    except (StoreUnusable, OSError) as error:
        raise InvalidArgument(f"the log could not be changed: {error}") from error
