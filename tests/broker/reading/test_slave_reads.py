"""What replicas answer to readers: where to go on reading, and when an offset is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.counters import Counters
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.reading.egress import Egress, Fetched, ReadCode
from aerobee.broker.reading.pull_session import PulledFrame, PullParameters, PullSession
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName, TermPolicy
from aerobee.broker.replication.read_places import ReadPlaces
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.acknowledged import AcknowledgedBatches
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.watermarks import EndWaiters
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import LeaseExpired, NotMaster, ReplicaBehind
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from tests.support.stores import SMALL, append, batch_of, open_store
from tests.support.unfollowed import NoFlusher, NoStreams

FAR_BYTES = 1_000


def _view(epoch: int, master_id: int, in_sync: Sequence[ReplicaName] = ()) -> ReplicaSetView:
    return ReplicaSetView(
        epoch=epoch,
        master_id=master_id,
        master_instance="",
        in_sync=frozenset(in_sync),
        replicas=frozenset(),
        revision=1,
    )


@dataclass
class Group:
    """A replica with id 0 in a group of three, as its roles show it."""

    term: MasterTerm | None = None
    replica_set: ReplicaSetView | None = None
    endpoints: dict[int, object] = field(default_factory=dict)
    own: ReplicaName = field(default_factory=lambda: ReplicaName(0, "i0"))
    confirmed_end: int = 0

    def note_confirmed(self, end: int) -> None:
        self.confirmed_end = end

    def follow(self, master_id: int = 1) -> None:
        self.term = None
        self.replica_set = _view(epoch=2, master_id=master_id)
        self.endpoints = {1: SimpleNamespace(address="127.0.0.1:1")}

    def lead(self, log_end: int, in_sync: tuple[int, ...] = (0, 1, 2)) -> None:
        names = [ReplicaName(one, f"i{one}") for one in in_sync]
        self.term = MasterTerm(
            epoch=3,
            own=self.own,
            in_sync=names,
            revision=1,
            log_end=log_end,
            confirmed_end=0,
            policy=TermPolicy(),
            now_s=0.0,
        )
        self.replica_set = _view(epoch=3, master_id=0, in_sync=names)
        self.endpoints = {one: SimpleNamespace(address="") for one in (0, 1, 2)}

    def master_address(self) -> str | None:
        assert self.replica_set is not None
        endpoint = self.endpoints.get(self.replica_set.master_id)
        return None if endpoint is None else "127.0.0.1:1"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    store = open_store(tmp_path)
    yield store
    store.close()


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def places(group: Group, store: MessageStore) -> ReadPlaces:
    return ReadPlaces(cast(Roles, group), store, slave_read_bytes=FAR_BYTES)


@pytest.fixture
async def egress(store: MessageStore, places: ReadPlaces) -> Egress:
    clock, counters = ManualClock(), Counters()
    topics = TopicTable()
    topics.put(TopicConfig(name="t", read_queue_count=4, write_queue_count=4))
    pool = ReadPool(
        ThreadPoolExecutor(1),
        counters,
        clock,
        loop_delay=LoopDelay(clock),
        threads=1,
        bytes_per_s=0,
    )
    guard = Guard(topics, broker_name="broker-a")
    return Egress(guard, store, counters, pool=pool, places=places)


def read(egress: Egress, offset: int, queue_id: int = 0, messages: int = 1) -> Fetched:
    found = egress.read(QueueRead("t", queue_id, offset, 1 << 20, messages))
    assert isinstance(found, Fetched)
    return found


async def test_a_master_sends_readers_far_behind_to_a_live_slave_that_is_in_sync(
    egress: Egress, group: Group, store: MessageStore
) -> None:
    group.lead(0)
    for number in range(40):
        append(store, "t", number % 4, b"x" * 100)
    assert read(egress, 0, 0).suggested_broker_id == 1
    assert read(egress, 0, 1).suggested_broker_id == 2, "queues spread over the slaves"
    assert read(egress, 9, 0).suggested_broker_id is None, "near the end"
    del group.endpoints[1]
    assert read(egress, 0, 0).suggested_broker_id == 2, "only one that is alive"
    group.lead(0, in_sync=(0,))
    assert read(egress, 0, 0).suggested_broker_id is None, "nobody else has everything"


async def test_a_slave_sends_readers_back_that_are_near_but_not_those_at_the_border(
    egress: Egress, group: Group, store: MessageStore
) -> None:
    group.follow(master_id=1)
    for _ in range(20):
        append(store, "t", 0, b"x" * 100)
    behind = [store.appended_end - store.appended_end // 20 * (offset + 1) for offset in range(20)]
    for offset in range(20):
        expected = 1 if behind[offset] <= FAR_BYTES // 2 else None
        assert read(egress, offset).suggested_broker_id == expected
    assert read(egress, 20).suggested_broker_id == 1, "it has everything"
    group.endpoints.clear()
    assert read(egress, 20).suggested_broker_id is None, "there is no master to go to"


async def test_a_slave_corrects_no_offset(
    egress: Egress, group: Group, store: MessageStore
) -> None:
    group.follow()
    for _ in range(3):
        append(store, "t", 0, b"x")
    beyond = read(egress, 7)
    assert (beyond.code, beyond.next_offset) == (ReadCode.NO_NEW_MESSAGE, 7)
    unknown = read(egress, 7, queue_id=3)
    assert (unknown.code, unknown.next_offset) == (ReadCode.NO_NEW_MESSAGE, 7)
    with pytest.raises(ReplicaBehind, match="offset -1 of queue 0"):
        read(egress, -1)


async def test_a_new_master_corrects_offsets_once_all_it_began_with_is_confirmed(
    egress: Egress, group: Group, store: MessageStore
) -> None:
    append(store, "t", 0, b"seen by consumers")
    store.append(batch_of("t", b"confirmed by the master before"), queue_id=0)
    group.lead(store.appended_end)
    assert read(egress, 2).code is ReadCode.NO_NEW_MESSAGE
    store.confirm(store.appended_end)
    assert read(egress, 2).code is ReadCode.NO_NEW_MESSAGE
    assert read(egress, 1).count == 1
    found = read(egress, 3)
    assert (found.code, found.next_offset) == (ReadCode.OFFSET_TOO_LARGE, 2)
    assert read(egress, 7, queue_id=3).code is ReadCode.OFFSET_TOO_LARGE


@dataclass
class Stream:
    """A pull session and the frames that its client got."""

    session: PullSession
    frames: list[PulledFrame] = field(default_factory=list)

    def run(self) -> list[PulledFrame]:
        frames = []
        while (frame := self.session.next_frame()) is not None:
            assert isinstance(frame, PulledFrame)
            frames.append(frame)
        self.frames += frames
        return frames


async def test_pulls_end_when_the_role_of_the_replica_changes(
    egress: Egress, group: Group, store: MessageStore
) -> None:
    group.follow()
    stream = Stream(PullSession(egress, is_current=lambda key, epoch: False))
    stream.session.subscribe(1, PullParameters("t", 0, 0, 100, 10, None), 1 << 20)
    stream.run()
    group.lead(store.appended_end)
    egress.wake_all()
    (ended,) = stream.run()
    assert isinstance(ended.error, NotMaster)
    key = GroupQueue("g", "t", 0)
    stream.session.subscribe(2, PullParameters("t", 0, 0, 100, 10, None, key, 7), 1 << 20)
    (refused,) = stream.run()
    assert isinstance(refused.error, LeaseExpired), "a master asks for the lease"


async def test_a_reader_that_waits_at_a_slave_is_told_once_where_to_go_on(
    egress: Egress, group: Group, store: MessageStore
) -> None:
    group.follow(master_id=1)
    append(store, "t", 0, b"x")
    stream = Stream(PullSession(egress, is_current=lambda key, epoch: False))
    stream.session.subscribe(1, PullParameters("t", 0, 1, 100, 10, None), 1 << 20)
    (told,) = stream.run()
    assert told.fetched is not None
    assert (told.fetched.code, told.fetched.count, told.fetched.next_offset) == (ReadCode.OK, 0, 1)
    assert told.fetched.suggested_broker_id == 1
    for _ in range(3):
        egress.wake_all()
        assert stream.run() == []
    append(store, "t", 0, b"y")
    egress.on_grown([("t", 0)])
    (grown,) = stream.run()
    assert grown.fetched is not None
    assert grown.fetched.count == 1
    await asyncio.sleep(0)


async def test_a_reader_that_waits_at_a_slave_gets_what_its_master_confirms_at_once(
    egress: Egress, group: Group, store: MessageStore
) -> None:
    group.follow()
    group.endpoints.clear()
    store.on_grown(egress.on_grown)
    durability = Durability(
        store,
        cast(Roles, group),
        AcknowledgedBatches(),
        SMALL,
        lambda end: EndWaiters(end, on_deadline_set=lambda _: None),
        NoFlusher(),
        NoStreams(),
        lambda error: None,
    )
    stream = Stream(PullSession(egress, is_current=lambda key, epoch: False))
    stream.session.subscribe(1, PullParameters("t", 0, 0, 100, 10, None), 1 << 20)
    stream.run()
    store.append(batch_of("t", b"x"), queue_id=0)
    durability.on_copied()
    assert stream.run() == []
    durability.on_confirmed(store.appended_end)
    (frame,) = stream.run()
    assert frame.fetched is not None
    assert frame.fetched.count == 1
