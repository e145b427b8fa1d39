"""What happens between a decision and its transaction, and behind routes that lag: real etcd, with
parts of a nameserver whose cache stands still until the test moves it."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from aerobee.nameserver.broker_session import BrokerSession
from aerobee.nameserver.config import BrokerLeaseConfig, EtcdConfig
from aerobee.nameserver.elector import Elector
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.key_values import Delete, Put, Snapshot, TransactionResult, WatchBatch
from aerobee.nameserver.log_reach import LogPositions
from aerobee.nameserver.registry import Registered, Registry
from aerobee.nameserver.replica_sets import ReplicaSets
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.sessions import BrokerSessions
from aerobee.nameserver.stored import (
    NO_MASTER,
    BrokerKey,
    BrokerRecord,
    InSyncReplica,
    Keys,
    ReplicaSet,
)
from aerobee.runtime.clock import ManualClock, SystemClock
from aerobee.runtime.errors import DuplicateBroker, InvalidArgument, RegistryUnavailable, StaleEpoch
from aerobee.runtime.retry import Backoff
from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb

NAME = "broker-a"
LEASE_MS = 30_000


class ForgetfulEtcd(Etcd):
    """Loses the answers to transactions, which take place, when told so."""

    lost_answers = 0

    async def transaction(
        self, expected: Mapping[str, int], changes: Sequence[Put | Delete]
    ) -> TransactionResult:
        done = await super().transaction(expected, changes)
        if self.lost_answers > 0:
            self.lost_answers -= 1
            raise RegistryUnavailable("the answer was lost")
        return done


class OneLook:
    """etcd as the routes meet it: they see it once, and nothing that changes afterwards."""

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd
        self.past: Snapshot | None = None
        self.is_over = asyncio.Event()

    @property
    def fresh_for_s(self) -> float:
        return self._etcd.fresh_for_s

    async def snapshot(self, prefix: str) -> Snapshot:
        return self.past or await self._etcd.snapshot(prefix)

    async def transaction(self, *_: object) -> TransactionResult:
        raise RegistryUnavailable("routes only look")

    @asynccontextmanager
    async def watch(
        self, prefix: str, *, from_revision: int
    ) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        yield self._nothing_new()

    async def _nothing_new(self) -> AsyncIterator[WatchBatch]:
        yield WatchBatch(())
        self.is_over.set()
        await asyncio.Event().wait()


@dataclass
class Parts:
    """A nameserver without its tasks."""

    etcd: ForgetfulEtcd
    keys: Keys
    groups: ReplicaSets
    registry: Registry
    cache: RouteCache
    sessions: BrokerSessions
    cluster: str
    look: OneLook

    async def catch_up(self, past: Snapshot | None = None) -> RouteTable:
        """Let the routes show etcd as it is now, or as it was."""
        self.look.past = past
        self.look.is_over.clear()
        follow = asyncio.create_task(self.cache.run())
        await self.look.is_over.wait()
        follow.cancel()
        await asyncio.wait([follow])
        return self.cache.table

    async def group(self) -> ReplicaSet:
        group = (await self.groups.view(NAME)).replica_set
        assert group is not None
        return group

    async def register(self, broker_id: int, instance: str, **changes: Any) -> Registered:
        return await self.registry.register(record(broker_id, instance, **changes), LEASE_MS)

    async def end_lease(self, broker_id: int) -> None:
        entry = await self.etcd.get(self.keys.broker(BrokerKey(NAME, broker_id)))
        assert entry is not None
        await self.etcd.revoke_lease(entry.lease_id)

    async def end_stream(self, broker_id: int) -> None:
        """As a nameserver does for a process that died."""
        record = (await self.groups.view(NAME)).live[broker_id]
        await self.registry.note_disconnected(record.key, record.stream)

    async def let_in_sync(self, *broker_ids: int) -> ReplicaSet:
        before = await self.group()
        after = await self.alter(before, *broker_ids)
        assert [name.broker_id for name in after.in_sync] == list(broker_ids)
        return after

    async def alter(self, group: ReplicaSet, *broker_ids: int) -> ReplicaSet:
        return await self.groups.alter_in_sync_set(
            NAME,
            master=(group.master_id, group.master_instance),
            epoch=group.epoch,
            in_sync=tuple(InSyncReplica(one, f"log-{one}") for one in broker_ids),
            expected_revision=group.revision,
        )

    def open(self, beat: pb.BrokerHeartbeat) -> BrokerSession:
        return self.sessions.open(beat)

    def heartbeat(self, broker_id: int, instance: str, sequence: int) -> pb.BrokerHeartbeat:
        return pb.BrokerHeartbeat(
            identity=common_pb2.BrokerIdentity(
                cluster=self.cluster, broker_name=NAME, broker_id=broker_id, instance=instance
            ),
            address=f"h:{broker_id}",
            lease_duration_ms=LEASE_MS,
            incarnation=f"log-{broker_id}",
            writable=True,
            sequence=sequence,
        )


def record(broker_id: int, instance: str, **changes: Any) -> BrokerRecord:
    made = BrokerRecord(
        BrokerKey(NAME, broker_id), instance, f"h:{broker_id}", incarnation=f"log-{broker_id}"
    )
    return dataclasses.replace(made, **changes)


@pytest.fixture
async def parts(shared_etcd: Any, cluster: str) -> AsyncIterator[Parts]:
    chance, clock, keys = random.Random(1), SystemClock(), Keys(cluster)
    etcd = ForgetfulEtcd(EtcdConfig(endpoints=(shared_etcd.endpoint,)), chance=chance)
    async with etcd:
        look: Any = OneLook(etcd)
        cache = RouteCache(
            look, keys, backoff=Backoff(base_ms=10, max_ms=50), chance=chance, clock=clock
        )
        positions = LogPositions()
        groups = ReplicaSets(etcd, keys, positions, allow_unclean=False)
        registry = Registry(etcd, keys, groups, BrokerLeaseConfig())
        sessions = BrokerSessions(registry, cache, positions, cluster=cluster, clock=clock)
        yield Parts(etcd, keys, groups, registry, cache, sessions, cluster, look)


async def elect_from(parts: Parts, table: RouteTable) -> ReplicaSet | None:
    """What the elector of a nameserver does whose routes are `table`."""
    group = table.replica_sets[NAME]
    due = parts.groups.election_due(group, table.replicas_of(group))
    assert due is not None, "from these routes an election is due"
    return await parts.groups.hold(group, due)


# ---------------------------------------------------------------------------------- decisions


async def test_of_two_elections_at_once_one_takes_place(parts: Parts) -> None:
    await parts.register(0, "m1")
    await parts.register(1, "s1")
    await parts.let_in_sync(0, 1)
    await parts.end_lease(0)
    table = await parts.catch_up()
    held = await asyncio.gather(*(elect_from(parts, table) for _ in range(4)))
    elected = [group for group in held if group is not None]
    assert [(group.epoch, group.master_instance) for group in elected] == [(2, "s1")]
    assert await parts.group() == elected[0]


async def test_a_master_that_registers_again_before_the_election_stays_master(
    parts: Parts,
) -> None:
    await parts.register(0, "m1")
    await parts.register(1, "s1")
    before = await parts.let_in_sync(0, 1)
    await parts.end_lease(0)
    table = await parts.catch_up()
    again = await parts.registry.register(record(0, "m1"), LEASE_MS, is_start=False)
    assert again.replica_set == before
    assert await elect_from(parts, table) is None
    assert await parts.group() == before


async def test_nobody_is_elected_who_died_between_decision_and_election(parts: Parts) -> None:
    for broker_id in range(3):
        await parts.register(broker_id, f"i{broker_id}")
    await parts.let_in_sync(0, 1, 2)
    await parts.end_lease(0)
    table = await parts.catch_up()
    await parts.end_lease(1)
    assert await elect_from(parts, table) is None
    elected = await elect_from(parts, await parts.catch_up())
    assert elected is not None
    assert (elected.epoch, elected.master_id) == (2, 2)


async def test_nobody_is_elected_whose_log_lost_bytes_between_decision_and_election(
    parts: Parts,
) -> None:
    await parts.register(0, "m1")
    await parts.register(1, "s1")
    await parts.let_in_sync(0, 1)
    await parts.end_lease(0)
    table = await parts.catch_up()
    await parts.end_stream(1)
    await parts.register(1, "s2", predecessor="s1", incarnation="log-1-again")
    assert await elect_from(parts, table) is None
    view = await parts.groups.view(NAME)
    assert view.replica_set is not None
    assert parts.groups.election_due(view.replica_set, view.live) is None


async def test_nobody_is_elected_whom_the_master_took_out_of_the_set_meanwhile(
    parts: Parts,
) -> None:
    await parts.register(0, "m1")
    await parts.register(1, "s1")
    await parts.let_in_sync(0, 1)
    await parts.end_lease(0)
    table = await parts.catch_up()
    await parts.let_in_sync(0)
    assert await elect_from(parts, table) is None


async def test_an_election_whose_answer_is_lost_is_not_held_twice(parts: Parts) -> None:
    await parts.register(0, "m1")
    await parts.register(1, "s1")
    await parts.let_in_sync(0, 1)
    await parts.end_lease(0)
    table = await parts.catch_up()
    parts.etcd.lost_answers = 1
    with pytest.raises(RegistryUnavailable):
        await elect_from(parts, table)
    assert await elect_from(parts, table) is None
    assert (await parts.group()).epoch == 2


# ---------------------------------------------------------------------------------- claims


async def test_a_claim_whose_answer_is_lost_is_found_again(parts: Parts) -> None:
    parts.etcd.lost_answers = 1
    session = parts.open(parts.heartbeat(0, "m1", 1))
    directive = await session.beat(parts.heartbeat(0, "m1", 1))
    assert (directive.stale, directive.renewed_sequence) == (True, 0)
    assert not directive.HasField("group")
    directive = await session.beat(parts.heartbeat(0, "m1", 2))
    assert (directive.stale, directive.renewed_sequence) == (False, 2)
    assert (directive.role, directive.epoch) == (common_pb2.MASTER, 1)


async def test_a_restart_whose_claim_is_lost_is_elected_once(parts: Parts) -> None:
    await parts.register(0, "m1")
    await parts.end_stream(0)
    parts.etcd.lost_answers = 1
    with pytest.raises(RegistryUnavailable):
        await parts.register(0, "m2", predecessor="m1")
    found = await parts.register(0, "m2", predecessor="m1")
    assert (found.replica_set.epoch, found.replica_set.master_instance) == (2, "m2")


async def test_of_two_successors_of_one_folder_one_is_registered(parts: Parts) -> None:
    await parts.register(0, "m1")
    await parts.register(1, "s1")
    await parts.end_stream(0)
    claims = (parts.register(0, f"m{number}", predecessor="m1") for number in (2, 3, 4))
    outcomes = await asyncio.gather(*claims, return_exceptions=True)
    registered = [one for one in outcomes if isinstance(one, Registered)]
    assert len(registered) == 1
    assert all(isinstance(one, Registered | DuplicateBroker) for one in outcomes), outcomes
    assert (await parts.group()).master_instance == registered[0].record.instance
    assert (await parts.group()).epoch == 2


async def test_a_new_replica_ends_the_old_rule_for_an_alone_master(parts: Parts) -> None:
    """One claim without proof, one registration of a second replica, at the same time."""
    for number in range(5):
        name = f"group-{number}"

        def named(broker_id: int, instance: str, name: str = name) -> BrokerRecord:
            return record(broker_id, instance, key=BrokerKey(name, broker_id))

        await parts.registry.register(named(0, "m1"), LEASE_MS)
        outcomes = await asyncio.gather(
            parts.registry.register(named(0, "m2"), LEASE_MS),
            parts.registry.register(named(1, "s1"), LEASE_MS),
            return_exceptions=True,
        )
        view = await parts.groups.view(name)
        assert view.replica_set is not None
        assert isinstance(outcomes[1], Registered)
        is_refused = isinstance(outcomes[0], DuplicateBroker)
        expected = (1, "m1") if is_refused else (2, "m2")
        assert (view.replica_set.epoch, view.replica_set.master_instance) == expected
        assert view.replica_set.replicas == (0, 1)


# ---------------------------------------------------------------------------------- lagging routes


async def test_a_deposed_master_that_registers_again_is_told_so_though_the_routes_lag(
    parts: Parts,
) -> None:
    session = parts.open(parts.heartbeat(0, "m1", 1))
    await session.beat(parts.heartbeat(0, "m1", 1))
    await parts.register(1, "s1")
    await parts.let_in_sync(0, 1)
    await parts.catch_up()
    assert (await session.beat(parts.heartbeat(0, "m1", 2))).role == common_pb2.MASTER

    await parts.end_lease(0)
    view = await parts.groups.view(NAME)
    assert view.replica_set is not None
    due = parts.groups.election_due(view.replica_set, view.live)
    assert due is not None
    assert await parts.groups.hold(view.replica_set, due) is not None
    assert parts.cache.table.replica_sets[NAME].epoch == 1, "the routes have seen nothing of it"

    directive = await session.beat(parts.heartbeat(0, "m1", 3))
    assert directive.renewed_sequence == 3, "it has a registration again"
    assert (directive.role, directive.epoch) == (common_pb2.SLAVE, 2)
    assert (directive.group.master_id, directive.group.master_instance) == (1, "s1")


async def test_a_stream_is_never_told_of_an_older_record_than_before(parts: Parts) -> None:
    session = parts.open(parts.heartbeat(0, "m1", 1))
    await session.beat(parts.heartbeat(0, "m1", 1))
    await parts.catch_up()
    lagging = await parts.etcd.snapshot(parts.keys.prefix)
    await parts.register(1, "s1")
    await parts.catch_up()
    news = session.news()
    assert news is not None
    assert list(news.group.replicas) == [0, 1]
    await parts.catch_up(lagging)
    news = session.news()
    assert news is None or list(news.group.replicas) == [0, 1]
    directive = await session.beat(parts.heartbeat(0, "m1", 2))
    assert list(directive.group.replicas) == [0, 1]


async def test_a_new_stream_to_a_nameserver_that_lags_is_told_what_etcd_has(
    parts: Parts,
) -> None:
    await parts.register(0, "m1")
    await parts.catch_up()
    await parts.register(1, "s1")
    await parts.let_in_sync(0, 1)
    session = parts.open(parts.heartbeat(0, "m1", 9))
    directive = await session.beat(parts.heartbeat(0, "m1", 9))
    assert [name.broker_id for name in directive.group.in_sync] == [0, 1]
    assert (directive.role, directive.renewed_sequence) == (common_pb2.MASTER, 9)


async def test_a_renewal_that_etcd_did_not_confirm_is_not_reported(parts: Parts) -> None:
    session = parts.open(parts.heartbeat(0, "m1", 1))
    assert (await session.beat(parts.heartbeat(0, "m1", 1))).renewed_sequence == 1
    await parts.end_lease(0)
    parts.etcd.lost_answers = 1
    directive = await session.beat(parts.heartbeat(0, "m1", 2))
    assert (directive.stale, directive.renewed_sequence) == (True, 1)
    directive = await session.beat(parts.heartbeat(0, "m1", 3))
    assert (directive.stale, directive.renewed_sequence) == (False, 3)


# ---------------------------------------------------------------------------------- in-sync sets


async def test_of_two_changes_from_one_revision_one_is_made_and_both_learn_the_record(
    parts: Parts,
) -> None:
    for broker_id in range(3):
        await parts.register(broker_id, f"i{broker_id}")
    before = await parts.group()
    answers = await asyncio.gather(parts.alter(before, 0, 1), parts.alter(before, 0, 2))
    now = await parts.group()
    assert answers[0] == answers[1] == now
    assert len(now.in_sync) == 2


async def test_a_change_whose_answer_is_lost_can_be_asked_again(parts: Parts) -> None:
    await parts.register(0, "m1")
    await parts.register(1, "s1")
    before = await parts.group()
    parts.etcd.lost_answers = 1
    with pytest.raises(RegistryUnavailable):
        await parts.alter(before, 0, 1)
    again = await parts.alter(before, 0, 1)
    assert again == await parts.group()
    assert len(again.in_sync) == 2


async def test_a_delayed_change_of_an_earlier_revision_changes_nothing(parts: Parts) -> None:
    await parts.register(0, "m1")
    await parts.register(1, "s1")
    first = await parts.group()
    grown = await parts.alter(first, 0, 1)
    shrunk = await parts.alter(grown, 0)
    assert await parts.alter(first, 0, 1) == shrunk


async def test_only_the_master_of_the_epoch_changes_the_set(parts: Parts) -> None:
    await parts.register(0, "m1")
    await parts.register(1, "s1")
    group = await parts.group()
    for stranger in (
        dataclasses.replace(group, epoch=0),
        dataclasses.replace(group, epoch=2),
        dataclasses.replace(group, master_instance="m0"),
        dataclasses.replace(group, master_id=1),
    ):
        with pytest.raises(StaleEpoch):
            await parts.alter(stranger, 0, 1)
    for wrong in ((1,), (0, 0), (0, 7), ()):
        with pytest.raises(InvalidArgument):
            await parts.alter(group, *wrong)
    with pytest.raises(StaleEpoch):
        await parts.groups.alter_in_sync_set(
            "broker-b", master=(0, "m1"), epoch=1, in_sync=(), expected_revision=0
        )
    assert await parts.group() == group


# ---------------------------------------------------------------------------------- damage


async def test_a_damaged_record_is_overwritten_by_nobody(parts: Parts) -> None:
    await parts.register(0, "m1")
    await parts.register(1, "s1")
    key = parts.keys.replica_set(NAME)
    good = await parts.etcd.get(key)
    assert good is not None
    await parts.etcd.transaction({}, [Put(key, b'{"epoch":')])
    with pytest.raises(RegistryUnavailable, match="damaged"):
        await parts.register(1, "s2", predecessor="s1")
    session = parts.open(parts.heartbeat(0, "m1", 1))
    assert (await session.beat(parts.heartbeat(0, "m1", 1))).stale
    await parts.etcd.transaction({}, [Put(key, good.value)])
    directive = await session.beat(parts.heartbeat(0, "m1", 2))
    assert (directive.stale, directive.role) == (False, common_pb2.MASTER)


async def test_a_record_that_was_deleted_comes_back_with_a_higher_epoch(parts: Parts) -> None:
    first = parts.heartbeat(0, "m1", 1)
    first.log_epoch = 41
    session = parts.open(first)
    await session.beat(first)
    assert (await elect_after_a_pause(parts)).epoch == 42
    await parts.etcd.transaction({}, [Delete(parts.keys.replica_set(NAME))])
    await parts.catch_up()
    second = parts.heartbeat(0, "m1", 2)
    second.log_epoch = 42
    await session.beat(second)
    elected = await elect_after_a_pause(parts)
    assert (elected.epoch, elected.master_id, elected.unclean_epochs) == (43, 0, ())


async def test_when_a_record_was_deleted_whoever_has_more_may_come_first(parts: Parts) -> None:
    laggard = parts.heartbeat(2, "r2", 1)
    laggard.log_epoch, laggard.log_end = 4, 1_000
    await parts.open(laggard).beat(laggard)
    clock = ManualClock()
    elector = Elector(parts.groups, parts.cache, clock=clock)
    await elector.look(await parts.catch_up())
    assert (await parts.group()).master_id == NO_MASTER
    furthest = parts.heartbeat(0, "r0", 1)
    furthest.log_epoch, furthest.log_end = 4, 9_000
    await parts.open(furthest).beat(furthest)
    clock.advance_ms(1_000)
    await elector.look(await parts.catch_up())
    elected = await parts.group()
    assert (elected.epoch, elected.master_id, elected.unclean_epochs) == (5, 0, (5,))


async def elect_after_a_pause(parts: Parts) -> ReplicaSet:
    """The group as the elector makes it, once it has waited for others to register."""
    clock = ManualClock()
    elector = Elector(parts.groups, parts.cache, clock=clock)
    await elector.look(await parts.catch_up())
    assert (await parts.group()).master_id == NO_MASTER
    clock.advance_ms(1_000)
    await elector.look(await parts.catch_up())
    return await parts.group()
