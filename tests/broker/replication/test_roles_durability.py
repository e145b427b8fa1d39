"""What is confirmed and acknowledged when, and why not: flush modes and replication modes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from aerobee.broker.replication.config import ReplicationConfig, ReplicationMode
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName
from aerobee.broker.replication.mastership import Mastership
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.acknowledged import AcknowledgedBatches
from aerobee.broker.sending.durability import Durability, Late
from aerobee.broker.sending.watermarks import EndWaiters
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import NotEnoughReplicas, NotMaster, StoreFailed
from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import Appended
from tests.support.stores import batch_of
from tests.support.unfollowed import NoFlusher

A_BATCH = batch_of("t", b"x")
OWN = ReplicaName(0, "log-a")
OTHER = ReplicaName(1, "log-b")


@dataclass
class Store:
    min_offset: int = 0
    appended_end: int = 0
    flushed_end: int = 0
    confirmed_end: int = 0
    unflushed_bytes: int = 0

    def confirm(self, end: int) -> None:
        assert self.confirmed_end <= end <= self.appended_end
        self.confirmed_end = end


@dataclass
class Streams:
    """To the slaves."""

    appended: int = 0
    confirmed: int = 0

    def on_appended(self) -> None:
        self.appended += 1

    def on_confirmed(self) -> None:
        self.confirmed += 1


@dataclass
class Scene:
    flush: FlushMode = FlushMode.ASYNC
    mode: ReplicationMode = ReplicationMode.SYNC
    min_insync_replicas: int = 1
    in_sync: tuple[ReplicaName, ...] = (OWN, OTHER)
    clock: ManualClock = field(default_factory=ManualClock)
    store: Store = field(default_factory=Store)
    streams: Streams = field(default_factory=Streams)
    counted: list[int] = field(default_factory=list)
    told: list[tuple[int, bool]] = field(default_factory=list)
    why: list[Late] = field(default_factory=list)
    failures: list[StoreFailed] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = ReplicationConfig(mode=self.mode, min_insync_replicas=self.min_insync_replicas)
        self.mastership = Mastership(OWN, "run-1", is_alone=False)
        self.roles = Roles(
            self.mastership, EpochHistory(), self.store, self.clock, config, segment_bytes=1 << 20
        )
        self.batches = AcknowledgedBatches((lambda batch: self.counted.append(batch.end),))
        self.durability = Durability(
            cast(MessageStore, self.store),
            self.roles,
            self.batches,
            StoreConfig(flush_mode=self.flush),
            lambda end: EndWaiters(end, on_deadline_set=lambda _: None),
            NoFlusher(),
            self.streams,
            self.failures.append,
        )
        self.roles.on_advanced(self.durability.look)
        self.mastership.hear(
            ReplicaSetView(
                epoch=1,
                master_id=0,
                master_instance="run-1",
                in_sync=frozenset(self.in_sync),
                replicas=frozenset({0, 1}),
                revision=1,
            )
        )
        self.renew()
        self.roles.begin_term(
            MasterTerm(
                epoch=1,
                own=OWN,
                in_sync=self.in_sync,
                revision=1,
                log_end=0,
                confirmed_end=0,
                policy=config.term_policy,
                now_s=self.clock.monotonic_s(),
            )
        )

    def end_term(self) -> None:
        self.roles.end_term()
        self.durability.end()

    def renew(self) -> None:
        self.sequence = getattr(self, "sequence", 0) + 1
        self.roles.heartbeat_sent(self.sequence)
        self.roles.renewed(self.sequence, 10_000)

    def append(self, end: int) -> None:
        """One more batch, whose producer waits for its acknowledgement."""
        begin, self.store.appended_end = self.store.appended_end, end
        self.batches.stored(A_BATCH, Appended(0, begin, end, 1))
        self.store.unflushed_bytes = end - self.store.flushed_end
        self.durability.on_appended()
        deadline_s = self.clock.monotonic_s() + 3.0
        self.durability.acknowledged.add(end, deadline_s, lambda ok: self._tell(end, ok))

    def _tell(self, end: int, in_time: bool) -> None:
        self.told.append((end, in_time))
        if not in_time:
            self.why.append(self.durability.why_late(end))

    def flushed(self, end: int) -> None:
        self.store.flushed_end = end
        self.durability.on_flushed(end)

    def pass_time(self, elapsed_ms: int) -> None:
        self.clock.advance_ms(elapsed_ms)
        self.durability.acknowledged.on_time(self.clock.monotonic_s())


def test_sync_replication_acknowledges_once_the_whole_set_has_it() -> None:
    scene = Scene()
    scene.roles.replica_joined(OTHER, 0)
    scene.append(100)
    assert scene.told == []
    assert scene.store.confirmed_end == 0
    scene.roles.replica_acknowledged(OTHER, 100)
    assert scene.told == [(100, True)]
    assert scene.store.confirmed_end == 100


def test_disk_and_replicas_go_in_parallel_and_both_must_have_it() -> None:
    scene = Scene(flush=FlushMode.SYNC)
    scene.roles.replica_joined(OTHER, 0)
    scene.append(100)
    assert scene.streams.appended == 1, "the replicas are sent it before the disk has it"
    scene.roles.replica_acknowledged(OTHER, 100)
    assert scene.told == []
    scene.flushed(100)
    assert scene.told == [(100, True)]


def test_async_replication_acknowledges_at_once_but_shows_only_what_is_confirmed() -> None:
    scene = Scene(mode=ReplicationMode.ASYNC)
    scene.roles.replica_joined(OTHER, 0)
    scene.append(100)
    assert scene.told == [(100, True)]
    assert scene.store.confirmed_end == 0
    scene.roles.replica_acknowledged(OTHER, 100)
    assert scene.store.confirmed_end == 100


@pytest.mark.parametrize("mode", list(ReplicationMode))
def test_nothing_is_confirmed_or_acknowledged_without_a_lease(mode: ReplicationMode) -> None:
    scene = Scene(mode=mode, flush=FlushMode.SYNC)
    scene.roles.replica_joined(OTHER, 0)
    scene.append(100)
    scene.clock.advance_ms(9_500)
    scene.flushed(100)
    scene.roles.replica_acknowledged(OTHER, 100)
    assert scene.told == []
    assert scene.store.confirmed_end == 0
    with pytest.raises(NotMaster, match="lease is not renewed"):
        scene.roles.check_may_act()
    scene.renew()
    assert scene.told == [(100, True)], "renewed, what waited is acknowledged"


def test_who_waits_when_the_term_ends_is_told_that_the_outcome_is_open() -> None:
    scene = Scene()
    scene.roles.replica_joined(OTHER, 0)
    scene.append(100)
    scene.end_term()
    assert scene.told == [(100, False)]
    assert scene.why == [Late.REPLICAS]
    assert len(scene.batches) == 0, "and it never counts"


@pytest.mark.parametrize("flush", list(FlushMode))
@pytest.mark.parametrize("mode", list(ReplicationMode))
def test_a_batch_counts_when_it_is_acknowledged(mode: ReplicationMode, flush: FlushMode) -> None:
    scene = Scene(mode=mode, flush=flush)
    scene.roles.replica_joined(OTHER, 0)
    for end in (100, 200):
        scene.append(end)
        assert scene.counted == [end for end, in_time in scene.told if in_time]
    scene.flushed(150)
    scene.roles.replica_acknowledged(OTHER, 150)
    assert scene.counted == [end for end, in_time in scene.told if in_time]
    assert 100 in scene.counted
    scene.flushed(200)
    scene.roles.replica_acknowledged(OTHER, 200)
    assert scene.counted == [100, 200]


def test_a_late_disk_a_late_replica_and_a_missing_one_are_told_apart() -> None:
    disk = Scene(flush=FlushMode.SYNC)
    disk.roles.replica_joined(OTHER, 0)
    disk.append(100)
    disk.pass_time(3_000)
    replica = Scene(flush=FlushMode.SYNC)
    replica.roles.replica_joined(OTHER, 0)
    replica.append(100)
    replica.flushed(100)
    replica.pass_time(3_000)
    missing = Scene()
    missing.append(100)
    missing.pass_time(3_000)
    assert (disk.why, replica.why, missing.why) == (
        [Late.DISK],
        [Late.REPLICAS],
        [Late.NO_REPLICA],
    )


def test_a_set_that_became_too_small_acknowledges_nothing() -> None:
    scene = Scene(min_insync_replicas=2)
    scene.roles.replica_joined(OTHER, 0)
    scene.roles.check_enough()
    scene.append(100)
    term = scene.roles.term
    assert term is not None
    term.in_sync_changed([OWN], 2)
    scene.durability.look()
    assert scene.store.confirmed_end == 100
    assert scene.told == []
    scene.pass_time(3_000)
    assert scene.why == [Late.NO_REPLICA]
    with pytest.raises(NotEnoughReplicas):
        scene.roles.check_enough()


def test_senders_are_slowed_down_when_the_replicas_are_behind() -> None:
    scene = Scene(mode=ReplicationMode.ASYNC)
    assert not scene.durability.is_behind()
    scene.store.appended_end = StoreConfig().unflushed_bytes_max
    assert scene.durability.is_behind()
    scene.store.confirmed_end = scene.store.appended_end
    assert not scene.durability.is_behind()


def test_a_slave_shows_what_its_master_confirmed_as_far_as_it_has_it() -> None:
    scene = Scene()
    scene.end_term()
    scene.store.appended_end = 500
    scene.durability.on_confirmed(300)
    assert scene.store.confirmed_end == 300
    scene.durability.on_confirmed(900)
    assert (scene.store.confirmed_end, scene.roles.confirmed_end) == (500, 500)
