"""A replica's roles in one process: a store of a few numbers, and nameservers set by the test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aerobee.broker.replication.config import ReplicationConfig, ReplicationMode
from aerobee.broker.replication.duties import Duties, Duty, OnChange
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.handover import Handover
from aerobee.broker.replication.in_sync_proposer import InSyncProposer
from aerobee.broker.replication.joining import BeginAnew, Cut
from aerobee.broker.replication.master_term import Proposal, ReplicaName
from aerobee.broker.replication.mastership import Mastership
from aerobee.broker.replication.replica_folder import OpenedReplica, ReplicaFolder
from aerobee.broker.replication.replica_set import ReplicaPlace, ReplicaSetView
from aerobee.broker.replication.role_manager import RoleManager
from aerobee.broker.replication.roles import Roles
from aerobee.broker.replication.state_file import STATE_PATH, ReplicaState
from aerobee.runtime import errors
from aerobee.runtime.call_context import RequestNames
from aerobee.runtime.clock import SystemClock
from aerobee.store.flush.disk_watch import DiskWatch
from aerobee.store.format.epoch_file import EPOCH_FILE, decode_epochs

OWN = ReplicaName(0, "log-a")
OTHER = ReplicaName(1, "log-b")


@dataclass
class Store:
    """Where a log begins and ends."""

    min_offset: int = 0
    appended_end: int = 0


@dataclass
class Master:
    """The other end of a slave's stream."""

    calls: list[tuple[str, int]] = field(default_factory=list)
    answer: Cut | BeginAnew | errors.AerobeeError | None = None
    """None: the stream continues."""
    ended: int = 0

    async def follow(self, master_address: str, epoch: int) -> Cut | BeginAnew:
        self.calls.append((master_address, epoch))
        try:
            if self.answer is None:
                await asyncio.Event().wait()
            if isinstance(self.answer, errors.AerobeeError):
                raise self.answer
            assert self.answer is not None
            return self.answer
        finally:
            self.ended += 1


class Scene:
    def __init__(
        self,
        *,
        is_alone: bool = False,
        history: EpochHistory | None = None,
        lag_ms: int = 200,
        duties: Duty | None = None,
    ) -> None:
        self.store = Store(appended_end=1_000)
        self.clock = SystemClock()
        self.watch = DiskWatch(self.clock, hung_after_s=5.0)
        self.files: dict[str, list[bytes]] = {}
        self.writes_fail = False
        self.failed: list[errors.StoreFailed] = []
        self.terms: list[int | None] = []
        self.files_at_roles: list[dict[str, list[bytes]]] = []
        """The files on disk when a term began or ended."""
        self.master = Master()
        self.proposals: list[Proposal] = []
        self.answers: list[errors.AerobeeError | None] = []
        self.revision = 0
        state = ReplicaState(
            broker_id=0, instance="run-1", incarnation="log-a", replicas=frozenset({0})
        )
        opened = OpenedReplica(
            state=state,
            predecessor="",
            history=history or EpochHistory(),
            is_alone=is_alone,
        )
        config = ReplicationConfig(
            mode=ReplicationMode.SYNC, in_sync_lag_max_ms=lag_ms, heartbeat_interval_ms=100
        )
        self.mastership = Mastership(OWN, "run-1", is_alone=is_alone)
        self.roles = Roles(
            self.mastership, opened.history, self.store, self.clock, config, segment_bytes=1 << 20
        )
        self.folder = ReplicaFolder(opened, self._write)
        self.proposer = InSyncProposer(
            self.roles, self.store, self.clock, self._alter, RequestNames("broker-a-0")
        )
        own = (self.proposer, OnChange(self._note_role))
        self.duties = Duties((*own, duties) if duties is not None else own)
        self.manager = RoleManager(
            self.roles,
            self.folder,
            self.store,
            self.clock,
            random.Random(1),
            follower=self.master,
            duties=self.duties,
            watch=self.watch,
            on_store_failed=self.failed.append,
        )
        self.handover = Handover(self.roles, self.store, self.clock, self.duties, self.watch)
        self.roles.on_advanced(self.handover.wake)
        self.roles.on_changed(self.manager.wake)
        self.roles.on_changed(self.proposer.wake)
        self.sequence = 0

    def _note_role(self) -> None:
        self.files_at_roles.append({path: list(all_of) for path, all_of in self.files.items()})
        self.terms.append(None if self.roles.term is None else self.roles.term.epoch)

    async def _write(self, path: str, data: bytes) -> None:
        await asyncio.sleep(0)
        if self.writes_fail:
            raise errors.NotWritable("full")
        self.files.setdefault(path, []).append(data)

    async def _alter(self, epoch: int, proposal: Proposal) -> ReplicaSetView:
        self.proposals.append(proposal)
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        return self.record(epoch, in_sync=tuple(sorted(proposal.in_sync)))

    def record(
        self,
        epoch: int,
        master_id: int = 0,
        instance: str = "run-1",
        *,
        in_sync: tuple[ReplicaName, ...] = (OWN,),
        replicas: tuple[int, ...] = (0, 1),
    ) -> ReplicaSetView:
        self.revision += 1
        return ReplicaSetView(
            epoch=epoch,
            master_id=master_id,
            master_instance=instance,
            in_sync=frozenset(in_sync),
            replicas=frozenset(replicas),
            revision=self.revision,
        )

    def hear(self, record: ReplicaSetView) -> None:
        """A directive that renews the lease."""
        self.sequence += 1
        self.roles.heartbeat_sent(self.sequence)
        self.roles.hear_endpoints(
            ReplicaPlace(
                broker_id=broker_id, instance=f"run-of-{broker_id}", address=f"host-{broker_id}:1"
            )
            for broker_id in record.replicas
        )
        self.roles.hear_replica_set(record)
        self.roles.renewed(self.sequence, 60_000)

    def epochs_on_disk(self) -> list[tuple[int, int]]:
        return decode_epochs(self.files[EPOCH_FILE][-1])

    def state_on_disk(self) -> ReplicaState:
        return ReplicaState.decode(self.files[STATE_PATH][-1])


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[Scene]:
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one) for one in (scene.manager.run(), scene.proposer.run())]
        try:
            yield scene
        finally:
            for task in running:
                task.cancel()
