"""A replica whose folder is an old copy says that it lost nothing: it is noticed when it registers,
through real nameservers and a real etcd."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from typing import Any

import grpc
import pytest

from aerobee.nameserver.broker_session import BrokerSession
from aerobee.nameserver.config import BrokerLeaseConfig
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.key_values import Put
from aerobee.nameserver.log_reach import LogPositions
from aerobee.nameserver.registry import Registry
from aerobee.nameserver.replica_sets import ReplicaSets
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.sessions import BrokerSessions
from aerobee.nameserver.stored import (
    BrokerKey,
    BrokerRecord,
    DurableLogs,
    Keys,
    ReplicaSet,
    Unreadable,
)
from aerobee.rpc.own_protocol import CODE_METADATA_KEY
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import ReplicaIncomplete
from aerobee.runtime.retry import Backoff
from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb

NAME = "broker-a"


async def noted(etcd: Etcd, cluster: str, broker_id: int) -> dict[str, int]:
    """Incarnation -> end, as etcd has it of that replica."""
    keys = Keys(cluster)
    entry = await etcd.get(keys.durable(BrokerKey(NAME, broker_id)))
    try:
        durable = DurableLogs() if entry is None else keys.decode(entry)
    except Unreadable:
        return {}
    assert isinstance(durable, DurableLogs)
    return {log.incarnation: log.end for log in durable.logs}


async def group_in(etcd: Etcd, cluster: str) -> ReplicaSet:
    entry = await etcd.get(Keys(cluster).replica_set(NAME))
    assert entry is not None
    group = Keys(cluster).decode(entry)
    assert isinstance(group, ReplicaSet)
    return group


async def refused(replica: Any, server: Any) -> str:
    """Why the replica is not registered."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await replica.connect(server)
    code = dict(error.value.trailing_metadata() or ())[CODE_METADATA_KEY]
    assert int(str(code)) == common_pb2.REPLICA_INCOMPLETE
    return str(error.value.details())


async def gone(replica: Any, etcd: Etcd, cluster: str) -> None:
    """Until its registration has ended."""
    async with asyncio.timeout(10):
        while await etcd.get(Keys(cluster).broker(BrokerKey(NAME, replica.broker_id))):
            await asyncio.sleep(0.02)


async def stopped_with(replicas: list[Any], etcd: Etcd, cluster: str, end: int) -> None:
    """All stop with everything up to `end` confirmed and on their disks."""
    for replica in replicas:
        await replica.beat(log_epoch=1, log_end=end, durable_end=end)
        await replica.leave()
    for replica in replicas:
        async with asyncio.timeout(10):
            while await noted(etcd, cluster, replica.broker_id) != {replica.incarnation: end}:
                await asyncio.sleep(0.02)
        await gone(replica, etcd, cluster)


async def in_sync_group(server: Any, make_replica: Any, count: int) -> list[Any]:
    """A master and slaves, all in sync."""
    replicas = [make_replica(number, f"i{number}", opened_end=0) for number in range(count)]
    for replica in replicas:
        await replica.connect(server)
    master = replicas[0]
    await master.until(lambda: len(master.last.group.replicas) == count)
    await server.stub.AlterInSyncSet(
        pb.AlterInSyncSetRequest(
            broker_name=NAME,
            master_id=0,
            master_instance=master.instance,
            epoch=1,
            expected_revision=master.last.group.revision,
            in_sync=[
                pb.ReplicaName(broker_id=one.broker_id, incarnation=one.incarnation)
                for one in replicas
            ],
        )
    )
    return replicas


async def test_an_old_copy_is_refused_then_not_elected_and_the_intact_one_ends_the_wait(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    replicas = await in_sync_group(server, make_replica, 3)
    # The slaves leave first; the set still names them, as after all lost power at once.
    await stopped_with(replicas[::-1], etcd, cluster, 2_000)
    copy = replicas[1].restarted("copied", log_end=500, opened_end=500)
    why = await refused(copy, server)
    assert "broker-a/1 ended at 500" in why
    assert "2000 bytes were confirmed" in why
    assert (await group_in(etcd, cluster)).epoch == 1

    renewed = copy.restarted("renewed", incarnation="another", opened_end=500)
    await renewed.connect(server)
    renewed.keep_beating()
    await asyncio.sleep(1.5)
    assert not renewed.is_master
    intact = replicas[2].restarted("intact", opened_end=2_000)
    await intact.connect(server)
    await intact.until_master(epoch=2)
    assert (await group_in(etcd, cluster)).unclean_epochs == ()


async def test_an_old_copy_of_a_group_of_one_comes_back_under_an_unclean_epoch(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    (alone,) = await in_sync_group(server, make_replica, 1)
    await stopped_with([alone], etcd, cluster, 2_000)
    # It took messages before it reached a nameserver: more than it ever had.
    copy = alone.restarted("copied", log_end=3_000, opened_end=500)
    await refused(copy, server)
    renewed = copy.restarted("renewed", incarnation="another", opened_end=3_000)
    await renewed.connect(server)
    assert (renewed.is_master, renewed.last.epoch) == (True, 2)
    assert (await group_in(etcd, cluster)).unclean_epochs == (2,)


async def test_an_old_copy_that_is_alone_in_the_set_waits_for_all_others_of_the_group(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    """As after all died at once, when its registration was the last to end."""
    server = await start_nameserver(shared_etcd.endpoint)
    last, other = make_replica(0, "i0", opened_end=0), make_replica(1, "i1", opened_end=0)
    await last.connect(server)
    await other.connect(server)
    last.keep_beating()
    await other.leave()
    await gone(other, etcd, cluster)
    await stopped_with([last], etcd, cluster, 2_000)
    copy = last.restarted("copied", log_end=500, opened_end=500)
    await refused(copy, server)
    renewed = copy.restarted("renewed", incarnation="another", opened_end=500)
    await renewed.connect(server)
    renewed.keep_beating()
    await asyncio.sleep(1.5)
    assert not renewed.is_master
    intact = other.restarted("intact", log_epoch=1, log_end=2_000, opened_end=2_000)
    await intact.connect(server)
    intact.keep_beating()
    await intact.until_master(epoch=2)
    assert (await group_in(etcd, cluster)).unclean_epochs == (2,)


async def test_an_old_copy_that_is_put_back_a_second_time_is_refused_again(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    replicas = await in_sync_group(server, make_replica, 2)
    await stopped_with(replicas[::-1], etcd, cluster, 2_000)
    copy = replicas[1].restarted("copied", log_end=500, opened_end=500)
    await refused(copy, server)
    renewed = copy.restarted("renewed", incarnation="another", opened_end=500)
    await renewed.connect(server)
    await renewed.beat(durable_end=500)
    await renewed.leave()
    async with asyncio.timeout(10):
        while await noted(etcd, cluster, 1) != {"log-1": 2_000, "another": 500}:
            await asyncio.sleep(0.02)
    await refused(renewed.restarted("again", incarnation="log-1", opened_end=500), server)


async def test_a_live_broker_that_turns_to_another_nameserver_is_not_refused(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    servers = [await start_nameserver(shared_etcd.endpoint) for _ in range(2)]
    broker = make_replica(0, "i0", opened_end=0)
    await broker.connect(servers[0])
    await broker.beat(log_epoch=1, log_end=700, durable_end=700)
    async with asyncio.timeout(5):
        while await noted(etcd, cluster, 0) != {"log-0": 700}:
            await asyncio.sleep(0.02)
    broker.kill()
    answer = await broker.connect(servers[1])
    assert answer.role == common_pb2.MASTER


async def test_a_broker_from_before_is_registered_as_it_was_and_what_it_lacks_is_recorded(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    (alone,) = await in_sync_group(server, make_replica, 1)
    await stopped_with([alone], etcd, cluster, 2_000)
    older = alone.restarted("older", log_end=500)
    answer = await older.connect(server)
    assert (answer.role, answer.group.unclean_epochs) == (common_pb2.MASTER, [2])


async def test_a_replica_that_is_removed_is_forgotten(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = make_replica(0, "m", opened_end=0), make_replica(1, "s", opened_end=0)
    await master.connect(server)
    await slave.connect(server)
    await stopped_with([slave], etcd, cluster, 900)
    await server.stub.RemoveReplica(pb.RemoveReplicaRequest(broker_name=NAME, broker_id=1))
    assert await noted(etcd, cluster, 1) == {}


async def test_what_makes_no_sense_counts_as_not_noted_and_is_written_over(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    await etcd.transaction({}, [Put(Keys(cluster).durable(BrokerKey(NAME, 0)), b"nonsense")])
    server = await start_nameserver(shared_etcd.endpoint)
    (alone,) = await in_sync_group(server, make_replica, 1)
    await stopped_with([alone], etcd, cluster, 40)


async def test_watchers_of_routes_hear_nothing_of_what_is_noted_and_versions_stay_comparable(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    first = await start_nameserver(shared_etcd.endpoint)
    broker = make_replica(0, "i0", opened_end=0, lease_ms=30_000)
    await broker.connect(first)
    await first.stub.CreateTopic(pb.CreateTopicRequest(name="orders"))
    watch = first.stub.WatchRoutes(pb.WatchRoutesRequest(topics=["orders"]))
    await watch.read()
    read = asyncio.ensure_future(watch.read())
    await broker.beat(log_end=700, durable_end=700)
    async with asyncio.timeout(5):
        while await noted(etcd, cluster, 0) != {"log-0": 700}:
            await asyncio.sleep(0.02)
    second = await start_nameserver(shared_etcd.endpoint)
    versions = [
        (await server.stub.QueryRoute(pb.QueryRouteRequest(topics=["orders"]))).version
        for server in (second, first)
    ]
    assert versions[0] <= versions[1], (
        "a client that heard the newcomer believes the other one, too"
    )
    assert not read.done()
    read.cancel()
    watch.cancel()


async def test_an_end_is_noted_at_most_every_five_seconds_and_only_if_it_rose(
    etcd: Etcd, cluster: str
) -> None:
    clock, keys, chance = ManualClock(), Keys(cluster), random.Random(1)
    cache = RouteCache(
        etcd, keys, backoff=Backoff(base_ms=10, max_ms=50), chance=chance, clock=clock
    )
    positions = LogPositions()
    groups = ReplicaSets(etcd, keys, positions, allow_unclean=False)
    registry = Registry(etcd, keys, groups, BrokerLeaseConfig(default_ms=30_000))
    sessions = BrokerSessions(registry, cache, positions, cluster=cluster, clock=clock)
    session: BrokerSession | None = None

    async def said(end: int, after_ms: int) -> dict[str, int]:
        nonlocal session
        heartbeat = pb.BrokerHeartbeat(
            identity=common_pb2.BrokerIdentity(broker_name=NAME, broker_id=0, instance="i0"),
            address="h:1",
            incarnation="log-0",
            log_end=end,
            durable_end=end,
            opened_end=0,
        )
        session = session or sessions.open(heartbeat)
        await session.beat(heartbeat)
        clock.advance_ms(after_ms)
        await sessions.note_durable()
        return await noted(etcd, cluster, 0)

    assert await said(100, 0) == {"log-0": 100}
    before = await etcd.revision()
    assert await said(200, 4_900) == {"log-0": 100}
    assert await etcd.revision() == before
    assert await said(200, 200) == {"log-0": 200}
    before = await etcd.revision()
    assert await said(200, 60_000) == {"log-0": 200}
    assert await etcd.revision() == before, "nothing has risen"


async def test_a_process_that_was_succeeded_says_nothing_more_of_the_log(
    etcd: Etcd, cluster: str
) -> None:
    keys = Keys(cluster)
    groups = ReplicaSets(etcd, keys, LogPositions(), allow_unclean=False)
    registry = Registry(etcd, keys, groups, BrokerLeaseConfig(default_ms=30_000))
    first = BrokerRecord(BrokerKey(NAME, 0), "i1", "h:1", incarnation="log")
    registered = await registry.register(first, 0, opened_end=0)
    assert await registry.note_durable(registered.record, 50)
    await registry.note_disconnected(registered.record.key, registered.record.stream)
    second = BrokerRecord(BrokerKey(NAME, 0), "i2", "h:1", incarnation="log", predecessor="i1")
    with pytest.raises(ReplicaIncomplete):
        await registry.register(second, 0, opened_end=49)
    await registry.register(second, 0, opened_end=50)
    assert not await registry.note_durable(registered.record, 90), "it was succeeded"
    assert await noted(etcd, cluster, 0) == {"log": 50}


async def test_an_end_is_noted_against_the_last_that_its_stream_wrote(
    etcd: Etcd, cluster: str
) -> None:
    """A heartbeat may still be on its way to etcd when the stream that brought it ends."""
    keys = Keys(cluster)
    replica_sets = ReplicaSets(etcd, keys, LogPositions(), allow_unclean=False)
    registry = Registry(etcd, keys, replica_sets, BrokerLeaseConfig(default_ms=30_000))
    key = BrokerKey(NAME, 0)

    async def is_connected() -> bool:
        return (await replica_sets.view(NAME)).live[0].is_connected

    first = BrokerRecord(key, "i1", "h:1", incarnation="log", stream="first")
    registered = await registry.register(first, 0, opened_end=0)
    full = dataclasses.replace(first, writable=False)
    await registry.renew(registered, full, 0, opened_end=0)
    await registry.note_disconnected(key, "first")
    assert not await is_connected()
    await registry.register(dataclasses.replace(first, stream="second"), 0, opened_end=0)
    await registry.note_disconnected(key, "first")
    assert await is_connected(), "its next stream is there"
