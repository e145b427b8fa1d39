"""A replica's own files: its identity (replicaState.json) and the epochs of its log.

Owns: both files while the folder is open, and how a start interprets them. `open_replica` blocks
and runs before anything is served; after that every change is written on the pool, one at a time. A
change may be acted on only once its call has returned: then it is on disk.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.broker.replication.state_file import (
    STATE_PATH,
    FoundLog,
    ReplicaState,
    ended_predecessor,
    may_have_lost,
)
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.log import log_event
from aerobee.runtime.waiting import Turns
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.tables.atomic_file import Source, read_with_backup, replace_atomically
from aerobee.store.engine.tables.epoch_table import load_epochs, save_epochs
from aerobee.store.format.epoch_file import EPOCH_FILE, encode_epochs

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaIdentity:
    """What the configuration says about this replica."""

    broker_id: int
    has_nameservers: bool
    is_sync_flush: bool
    cluster: str = ""
    broker_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedReplica:
    """This run of the replica."""

    state: ReplicaState
    predecessor: str
    """The instance that used the folder before and has certainly ended; empty: none is known."""
    history: EpochHistory
    is_alone: bool
    """It may act as master at once: no other replica could be elected."""
    opened_end: int = 0
    """Where the log ended when it was opened."""
    trouble: str = ""
    """Why it counts as another log than before, if an operator should know; otherwise empty."""

    @property
    def own(self) -> ReplicaName:
        return ReplicaName(self.state.broker_id, self.state.incarnation)


def open_replica(
    disk: Disk, identity: ReplicaIdentity, found: FoundLog, chance: random.Random
) -> OpenedReplica:
    """Take the folder over for a new instance. Blocks; we hold the folder's lock.

    Raises:
        InvalidArgument: the files cannot be read or written, or they say that the set has other
            replicas, which a broker without a nameserver cannot handle.
    """
    try:
        previous = _load_state(disk)
        if previous.state is not None:
            _check_owner(identity, previous.state)
        history = load_history(disk)
        opened = next_run(identity, previous, history, found, chance)
        # The epoch named in the state is in the file at all times: a new one is written there
        # first, and epochs of lost bytes are removed from it last.
        has_new = not set(opened.history.entries) <= set(history.entries)
        if has_new:
            save_history(disk, opened.history)
        replace_atomically(disk, STATE_PATH, opened.state.encode())
        if not has_new and opened.history != history:
            save_history(disk, opened.history)
    except StoreUnusable as error:
        raise InvalidArgument(str(error)) from error
    except OSError as error:
        raise InvalidArgument(
            f"the replica's files in {disk} cannot be used: {error.strerror or error}; check "
            "permissions and the space on the disk"
        ) from error
    return opened


def next_run(
    identity: ReplicaIdentity,
    previous: PreviousRun,
    history: EpochHistory,
    found: FoundLog,
    chance: random.Random,
) -> OpenedReplica:
    """Who this replica is from here on, and which epochs its log has; pure."""
    kept = history.up_to(found.end)
    state = ReplicaState(
        broker_id=identity.broker_id,
        instance=random_name(chance),
        incarnation=random_name(chance),
        epoch=kept.latest_epoch,
        boot_id=found.boot_id,
        is_sync_flush=identity.is_sync_flush,
        cluster=identity.cluster,
        broker_name=identity.broker_name,
    )
    before = previous.state
    if before is None:
        # A log without this file was written by a stand-alone broker, before replicas existed. With
        # neither, only a nameserver can say whether there are other replicas.
        is_alone = not identity.has_nameservers or (found.end > 0 and previous.is_certain)
        if is_alone:
            state = replace(state, replicas=frozenset({identity.broker_id}))
        return OpenedReplica(
            state=state,
            predecessor="",
            history=kept,
            is_alone=is_alone,
            opened_end=found.end,
        )
    is_alone = before.replicas <= {identity.broker_id}
    is_unused = found.end == 0 and not kept.entries
    if identity.has_nameservers and (not before.replicas or is_unused):
        # It stopped before it learned of its replica set, or before that had a master: another
        # replica may be master by now.
        is_alone = False
    _check_usable(identity, before, history, is_alone=is_alone)
    has_lost = not previous.is_certain or may_have_lost(before, found)
    if has_lost and is_alone and kept.entries:
        # What is written from here on differs from what once followed under the old epoch.
        kept = kept.begin(max(kept.latest_epoch, before.epoch) + 1, found.end)
    if not has_lost and before.broker_id == identity.broker_id:
        state = replace(state, incarnation=before.incarnation)
    return OpenedReplica(
        state=replace(state, epoch=kept.latest_epoch, replicas=before.replicas),
        predecessor=ended_predecessor(before, found.boot_id, identity.broker_id),
        history=kept,
        is_alone=is_alone and (previous.is_certain or not identity.has_nameservers),
        opened_end=found.end,
        trouble=_INCOMPLETE if before.is_incomplete else "",
    )


_INCOMPLETE = (
    "the folder lacks messages that this replica once had (an older copy was put back, or the "
    "disk lost bytes), so it is not elected as a replica that has all messages"
)


def _check_owner(identity: ReplicaIdentity, before: ReplicaState) -> None:
    """Raises InvalidArgument. Every cluster counts its epochs from 1, so they cannot distinguish
    its logs from another cluster's."""
    owner = (before.cluster, before.broker_name)
    if all(owner) and owner != (identity.cluster, identity.broker_name):
        raise InvalidArgument(
            f"the folder holds the messages of {before.broker_name} of cluster {before.cluster}, "
            f"this is {identity.broker_name} of cluster {identity.cluster}: correct cluster and "
            "broker_name, or choose another folder"
        )


def _check_usable(
    identity: ReplicaIdentity, before: ReplicaState, history: EpochHistory, *, is_alone: bool
) -> None:
    """Raises InvalidArgument."""
    if is_alone:
        return
    if not identity.has_nameservers:
        raise InvalidArgument(
            f"the folder belongs to a group of the replicas {sorted(before.replicas)}: without a "
            "nameserver it is unknown which of them is master; set nameservers"
        )
    if history.latest_epoch < before.epoch:
        raise InvalidArgument(
            f"{EPOCH_FILE} ends with epoch {history.latest_epoch}, the replica has seen "
            f"{before.epoch}: restore the file, or move the folder away and start the replica "
            "with an empty one"
        )


def note_log_emptied(disk: Disk, chance: random.Random) -> None:
    """Called before the log of a closed folder is emptied: from now on it is another log. Blocks.

    Its epochs are removed together with the log: without them a log that still exists could not
    join.

    Raises StoreUnusable, OSError.
    """
    previous = _load_state(disk).state
    if previous is not None:
        state = replace(previous, incarnation=random_name(chance), epoch=0, closed_end=None)
        replace_atomically(disk, STATE_PATH, state.encode())


def note_log_repaired(disk: Disk, chance: random.Random) -> None:
    """Called before an operator's repair or an unclean election removes something from the log of a
    closed folder: it counts as another log, as it may lack messages from then on. Blocks.

    Raises StoreUnusable, OSError.
    """
    previous = _load_state(disk).state
    if previous is not None:
        state = replace(previous, incarnation=random_name(chance), closed_end=None)
        replace_atomically(disk, STATE_PATH, state.encode())


def note_incomplete(disk: Disk) -> None:
    """Called after the registry has said that a closed folder's log lacks what its incarnation had:
    it counts as another log, and the members of the replica set must be learned again. Blocks.

    Raises StoreUnusable, OSError.
    """
    previous = _load_state(disk).state
    if previous is not None:
        state = replace(previous, is_incomplete=True, replicas=frozenset(), closed_end=None)
        replace_atomically(disk, STATE_PATH, state.encode())


def note_log_cut(disk: Disk, end: int) -> None:
    """Called after the log of a closed folder was cut: nothing it should have is lost. Blocks.

    Raises StoreUnusable, OSError.
    """
    previous = _load_state(disk).state
    if previous is not None and previous.closed_end is not None:
        replace_atomically(disk, STATE_PATH, replace(previous, closed_end=end).encode())


def note_failed(disk: Disk) -> None:
    """Called after a folder could not be closed: its log may lack what was read from it. Blocks.

    Raises StoreUnusable, OSError.
    """
    previous = _load_state(disk).state
    if previous is not None:
        replace_atomically(disk, STATE_PATH, replace(previous, has_failed=True).encode())


def random_name(chance: random.Random) -> str:
    """For an instance or an incarnation."""
    return f"{chance.getrandbits(64):016x}"


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """What the folder says about its previous run."""

    state: ReplicaState | None
    is_certain: bool
    """It is the newest version written, or none was ever written."""


def _load_state(disk: Disk) -> PreviousRun:
    """Raises StoreUnusable."""
    loaded = read_with_backup(disk, STATE_PATH, ReplicaState.decode)
    # If the file itself is missing, a replacement was interrupted: nobody acted on its content.
    is_certain = loaded.source is Source.FILE or not disk.exists(STATE_PATH)
    if not is_certain:
        log_event(
            log,
            "the replica's state is damaged: its log counts as another log",
            level=logging.WARNING,
            source=loaded.source,
            why=loaded.problem,
        )
    return PreviousRun(loaded.value, is_certain)


def load_history(disk: Disk) -> EpochHistory:
    """Raises StoreUnusable."""
    return EpochHistory.of(load_epochs(disk).value or ())


def save_history(disk: Disk, history: EpochHistory) -> None:
    """Durable when it returns. Raises OSError."""
    save_epochs(disk, history.entries)


Write = Callable[[str, bytes], Awaitable[None]]
"""Replaces a file durably, on the pool. Raises NotWritable, StoreFailed."""


class ReplicaFolder:
    """The files of an opened replica; changes come one after another."""

    def __init__(self, opened: OpenedReplica, write: Write) -> None:
        self.state = opened.state
        self._write = write
        self._lock = Turns()

    async def save_history(self, history: EpochHistory) -> None:
        """The history first: its newest epoch is recorded once the history is there.

        Raises:
            NotWritable, StoreFailed: nothing may be done under a new epoch.
        """
        async with self._lock:
            await self._write(EPOCH_FILE, encode_epochs(history.entries))
            await self._save(replace(self.state, epoch=history.latest_epoch))

    async def save_replicas(self, replicas: frozenset[int]) -> None:
        """Raises NotWritable, StoreFailed."""
        async with self._lock:
            if replicas != self.state.replicas:
                await self._save(replace(self.state, replicas=replicas))

    async def note_closed(self, log_end: int) -> None:
        """Record that nothing more is appended. Raises NotWritable, StoreFailed."""
        async with self._lock:
            await self._save(replace(self.state, closed_end=log_end))

    async def write_again(self) -> None:
        """Rewrite the state unchanged, to test whether the disk responds.
        Raises NotWritable, StoreFailed."""
        async with self._lock:
            await self._save(self.state)

    async def note_failed(self) -> None:
        """Record that the disk refused a write or an fsync. Raises NotWritable, StoreFailed."""
        async with self._lock:
            await self._save(replace(self.state, has_failed=True))

    async def _save(self, state: ReplicaState) -> None:
        await self._write(STATE_PATH, state.encode())
        self.state = state
