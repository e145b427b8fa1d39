"""Who is master, through real nameservers and a real etcd: after deaths, restarts, resignations."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import grpc
import pytest

from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.key_values import Put
from aerobee.nameserver.stored import BrokerKey, BrokerRecord, Keys, ReplicaSet
from aerobee.rpc.own_protocol import CODE_METADATA_KEY
from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.waiting import until


def code_of(error: grpc.aio.AioRpcError) -> int:
    return int(str(dict(error.trailing_metadata() or ())[CODE_METADATA_KEY]))


async def group_in(etcd: Etcd, cluster: str, name: str = "broker-a") -> ReplicaSet:
    keys = Keys(cluster)
    entry = await etcd.get(keys.replica_set(name))
    assert entry is not None
    group = keys.decode(entry)
    assert isinstance(group, ReplicaSet)
    return group


async def end_lease(etcd: Etcd, cluster: str, replica: Any) -> None:
    """As if the replica had been silent for its lease, without the waiting."""
    replica.kill()
    entry = await etcd.get(Keys(cluster).broker(BrokerKey(replica.name, replica.broker_id)))
    assert entry is not None
    await etcd.revoke_lease(entry.lease_id)


async def set_in_sync(server: Any, group: pb.GroupRecord, *replicas: Any) -> pb.GroupRecord:
    """As the group's master would."""
    answer: pb.GroupRecord = await server.stub.AlterInSyncSet(
        pb.AlterInSyncSetRequest(
            broker_name=group.broker_name,
            master_id=group.master_id,
            master_instance=group.master_instance,
            epoch=group.epoch,
            expected_revision=group.revision,
            in_sync=[
                pb.ReplicaName(broker_id=one.broker_id, incarnation=one.incarnation)
                for one in replicas
            ],
        )
    )
    return answer


async def two_in_sync(server: Any, make_replica: Any, **settings: Any) -> tuple[Any, Any]:
    """A master and a slave that has everything, both beating."""
    master, slave = make_replica(0, "m1", **settings), make_replica(1, "s1", **settings)
    await master.connect(server)
    await slave.connect(server)
    await master.until(lambda: list(master.last.group.replicas) == [0, 1])
    await set_in_sync(server, master.last.group, master, slave)
    for one in (master, slave):
        await one.until(lambda one=one: len(one.last.group.in_sync) == 2)
        one.keep_beating()
    return master, slave


async def roles(server: Any) -> dict[int, int]:
    cluster = await server.stub.DescribeCluster(pb.DescribeClusterRequest())
    return {broker.identity.broker_id: broker.role for broker in cluster.brokers}


# ---------------------------------------------------------------------------------- new groups


async def test_the_first_replica_is_master_with_its_first_answer(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    replica = make_replica(3, "i1")
    first = await replica.connect(server)
    assert (first.role, first.epoch, first.renewed_sequence) == (common_pb2.MASTER, 1, 1)
    group = first.group
    assert (group.master_id, group.master_instance, group.epoch) == (3, "i1", 1)
    assert [(name.broker_id, name.incarnation) for name in group.in_sync] == [(3, "log-3")]
    assert list(group.replicas) == [3]
    assert group.revision == (await group_in(etcd, cluster)).revision
    assert [endpoint.address for endpoint in first.replicas] == [replica.address]
    assert await roles(server) == {3: common_pb2.MASTER}, "the routes know before the broker does"


async def test_of_replicas_that_start_at_once_through_two_nameservers_one_is_master(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    servers = [await start_nameserver(shared_etcd.endpoint) for _ in range(2)]
    replicas = [make_replica(number, f"i{number}") for number in range(4)]
    await asyncio.gather(*(replica.connect(servers[replica.broker_id % 2]) for replica in replicas))
    group = await group_in(etcd, cluster)
    assert (group.epoch, group.replicas) == (1, (0, 1, 2, 3))
    for replica in replicas:
        await replica.until(lambda replica=replica: len(replica.last.group.replicas) == 4)
        assert replica.is_master == (replica.broker_id == group.master_id)
        assert len(replica.last.replicas) == 4


async def test_a_group_from_before_replication_gets_a_master_with_the_next_registration(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    await etcd.transaction(
        {}, [Put(Keys(cluster).replica_set("broker-a"), b'{"epoch":1,"masterId":0}')]
    )
    server = await start_nameserver(shared_etcd.endpoint)
    first = await make_replica(0, "i1").connect(server)
    assert (first.role, first.epoch) == (common_pb2.MASTER, 2)
    assert list(first.group.replicas) == [0]


# ---------------------------------------------------------------------------------- fail-over


async def test_a_slave_in_sync_follows_a_master_whose_lease_ends(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await two_in_sync(server, make_replica)
    began_s = time.monotonic()
    master.kill()
    await slave.until_master(epoch=2)
    assert time.monotonic() - began_s > 0.7, "not before the lease of a second ends"
    group = await group_in(etcd, cluster)
    assert [name.broker_id for name in group.in_sync] == [1]
    assert group.replicas == (0, 1)
    assert group.unclean_epochs == ()
    returned = master.restarted("m2")
    answer = await returned.connect(server)
    assert (answer.role, answer.group.master_instance) == (common_pb2.SLAVE, "s1")


async def test_an_election_follows_the_end_of_a_lease_at_once(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await two_in_sync(server, make_replica, lease_ms=30_000)
    took_s = []
    for epoch in range(2, 12):
        revoked_s = time.monotonic()
        await end_lease(etcd, cluster, master)
        await slave.until_master(epoch)
        took_s.append(time.monotonic() - revoked_s)
        master, slave = slave, master.restarted(f"i{epoch}")
        await slave.connect(server)
        await slave.until(lambda s=slave: len(s.last.group.in_sync) == 1)
        group = await set_in_sync(server, slave.last.group, master, slave)
        assert len(group.in_sync) == 2
    assert sorted(took_s)[5] < 0.25, f"typically far below a tenth of a second, was {took_s}"


async def test_without_a_replica_in_sync_there_is_no_master_and_no_route_shows_one(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = make_replica(0, "m1", lease_ms=60_000), make_replica(1, "s1")
    await master.connect(server)
    await slave.connect(server)
    slave.keep_beating()
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders"))
    await end_lease(etcd, cluster, master)
    await slave.until(lambda: [r.identity.broker_id for r in slave.last.replicas] == [1])
    await asyncio.sleep(1.5)
    assert not slave.is_master
    assert (await group_in(etcd, cluster)).epoch == 1
    assert await roles(server) == {1: common_pb2.SLAVE}
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.CreateTopic(pb.CreateTopicRequest(name="later"))
    assert code_of(refused.value) == common_pb2.NO_BROKER_AVAILABLE
    returned = master.restarted("m2")
    answer = await returned.connect(server)
    assert (answer.role, answer.epoch) == (common_pb2.MASTER, 2)


async def test_an_unclean_election_happens_only_if_allowed_and_is_recorded(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint, unclean_election=True)
    master = make_replica(0, "m1")
    little, much = make_replica(1, "s1"), make_replica(2, "s2")
    for one in (master, little, much):
        await one.connect(server)
    for one in (little, much):
        one.keep_beating()
    await little.beat(log_epoch=1, log_end=100)
    await much.beat(log_epoch=1, log_end=200)
    await end_lease(etcd, cluster, master)
    await much.until_master(epoch=2)
    group = await group_in(etcd, cluster)
    assert [name.broker_id for name in group.in_sync] == [2]
    assert group.unclean_epochs == (2,)
    assert list(much.last.group.unclean_epochs) == [2]


async def test_when_all_in_sync_replicas_lost_power_the_one_with_the_most_is_master(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await two_in_sync(server, make_replica)
    master.kill()
    slave.kill()
    back = slave.restarted("s2", incarnation="log-1-again", log_epoch=1, log_end=700)
    assert (await back.connect(server)).role == common_pb2.SLAVE
    back.keep_beating()
    await asyncio.sleep(1.2)
    assert not back.is_master, "the other one may have kept more"
    former = master.restarted("m2", incarnation="log-0-again", log_epoch=1, log_end=500)
    await former.connect(server)
    former.keep_beating()
    await back.until_master(epoch=2)
    group = await group_in(etcd, cluster)
    assert [name.incarnation for name in group.in_sync] == ["log-1-again"]
    assert group.unclean_epochs == (2,), "what the lost bytes alone had is gone"


async def test_many_nameservers_hold_each_election_once(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    servers = [await start_nameserver(shared_etcd.endpoint) for _ in range(3)]
    master, slave = await two_in_sync(servers[0], make_replica, lease_ms=30_000)
    for epoch in range(2, 12):
        await end_lease(etcd, cluster, master)
        await slave.until_master(epoch)
        former = master
        master, slave = slave, former.restarted(f"i{epoch}")
        await slave.connect(servers[epoch % 3])
        group = await set_in_sync(servers[epoch % 3], slave.last.group, master, slave)
        assert group.epoch == epoch, "one death, one epoch"


# ---------------------------------------------------------------------------------- restarts


async def test_a_restarted_master_that_proves_it_is_elected_anew_at_once(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, _ = await two_in_sync(server, make_replica, lease_ms=30_000)
    master.kill()
    again = master.restarted("m2", log_epoch=1, log_end=900)
    first = await again.connect(server)
    assert (first.role, first.epoch) == (common_pb2.MASTER, 2)
    assert first.group.master_instance == "m2"
    assert [name.broker_id for name in first.group.in_sync] == [0, 1]


async def test_nobody_takes_the_place_of_a_living_master_without_proof(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await two_in_sync(server, make_replica)
    for proof in ("", "m0"):
        stranger = master.restarted(f"x{proof}", predecessor=proof)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stranger.connect(server)
        assert code_of(refused.value) == common_pb2.DUPLICATE_BROKER
    elsewhere = master.restarted("x2", predecessor="", address="127.0.0.1:7")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await elsewhere.connect(server)
    assert code_of(refused.value) == common_pb2.DUPLICATE_BROKER
    await master.beat()
    assert master.is_master
    assert (await group_in(etcd, cluster)).epoch == 1
    master.kill()
    await slave.until_master(epoch=2)
    late = master.restarted("x3", predecessor="")
    assert (await late.connect(server)).role == common_pb2.SLAVE, "the lease has ended"


async def test_who_forges_a_predecessor_does_not_depose_a_master_that_is_heard(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    """Neither at the nameserver that hears it nor at another one, which knows it from etcd."""
    server, other = [await start_nameserver(shared_etcd.endpoint) for _ in range(2)]
    master, _ = await two_in_sync(server, make_replica, lease_ms=30_000)
    for asked in (server, other):
        for address in ("127.0.0.1:1", master.address):
            forged = master.restarted(
                "f" * 16, predecessor=master.instance, address=address, log_end=2**40
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await forged.connect(asked)
            assert code_of(refused.value) == common_pb2.DUPLICATE_BROKER
    assert (await master.beat()).role == common_pb2.MASTER
    assert (await group_in(etcd, cluster)).epoch == 1


@pytest.mark.parametrize("does", ["resigns", "leaves"])
async def test_who_speaks_as_a_process_that_is_heard_is_not_listened_to(
    does: str, shared_etcd: Any, start_nameserver: Any, make_replica: Any, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, _ = await two_in_sync(server, make_replica)
    forged = make_replica(0, "m1", resigned_epoch=1, successor_id=1)
    call = server.stub.Register()
    await call.write(forged.heartbeat(leaving=does == "leaves"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert code_of(refused.value) == common_pb2.BUSY
    assert (await master.beat()).epoch == 1
    assert master.is_master


async def test_a_stream_is_of_one_process(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, _ = await two_in_sync(server, make_replica)
    stranger = make_replica(0, "z1", name="broker-z")
    await stranger.connect(server)
    stranger.name, stranger.instance = master.name, master.instance
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stranger.beat(resigned_epoch=1)
    assert code_of(refused.value) == common_pb2.INVALID_ARGUMENT
    assert (await master.beat()).epoch == 1


async def test_a_restart_at_another_nameserver_need_not_wait_for_the_lease(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server, other = [await start_nameserver(shared_etcd.endpoint) for _ in range(2)]
    master, _ = await two_in_sync(server, make_replica, lease_ms=30_000)
    master.kill()
    again = master.restarted("m2", log_epoch=1, log_end=900)

    async def is_elected() -> bool:
        with contextlib.suppress(grpc.aio.AioRpcError):
            return bool((await again.connect(other)).role == common_pb2.MASTER)
        return False  # a broker asks again, too

    await until(is_elected)
    assert again.last.epoch == 2


async def test_a_broker_that_comes_back_by_another_stream_is_not_succeeded(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server, other = [await start_nameserver(shared_etcd.endpoint) for _ in range(2)]
    master, _ = await two_in_sync(server, make_replica, lease_ms=30_000)
    await master.connect(other)  # after its stream to the first one has broken
    await master.beat()
    forged = master.restarted("x1")
    for asked in (server, other):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await forged.connect(asked)
        assert code_of(refused.value) == common_pb2.DUPLICATE_BROKER
    assert (await master.beat()).epoch == 1


async def test_who_has_the_folder_of_a_broker_takes_its_place_at_once_wherever_it_is_reached(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, _ = await two_in_sync(server, make_replica)
    master.kill()
    moved = master.restarted("m2", address="127.0.0.2:10911", log_epoch=1, log_end=900)
    first = await moved.connect(server)
    assert (first.role, first.epoch) == (common_pb2.MASTER, 2)
    assert {one.identity.broker_id: one.address for one in first.replicas}[0] == "127.0.0.2:10911"


async def test_a_late_heartbeat_of_an_ended_process_does_not_take_its_place_back(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    other = await start_nameserver(shared_etcd.endpoint)
    first = make_replica(0, "i1")
    await first.connect(server)
    first.kill()
    second = first.restarted("i2")
    await second.connect(server)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await first.connect(other)
    assert code_of(refused.value) == common_pb2.DUPLICATE_BROKER
    answer = await second.beat()
    assert (answer.role, answer.epoch) == (common_pb2.MASTER, 2)


async def test_an_alone_broker_that_restarts_at_its_address_needs_no_proof(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    first = make_replica(0, "i1", lease_ms=30_000)
    await first.connect(server)
    first.kill()
    second = first.restarted("i2", predecessor="", incarnation="emptied")
    answer = await second.connect(server)
    assert (answer.role, answer.epoch) == (common_pb2.MASTER, 2)


# ---------------------------------------------------------------------------------- resignation


async def test_a_master_that_resigns_is_followed_by_the_one_it_wishes(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server, other = [await start_nameserver(shared_etcd.endpoint) for _ in range(2)]
    master, slave = await two_in_sync(server, make_replica)
    third = make_replica(2, "t1", log_epoch=1, log_end=10**6)
    await third.connect(other)
    third.keep_beating()
    await set_in_sync(server, third.last.group, master, slave, third)
    began_s = time.monotonic()
    answer = await master.beat(resigned_epoch=1, successor_id=1)
    assert (answer.role, answer.epoch, answer.group.master_id) == (common_pb2.SLAVE, 2, 1)
    await slave.until_master(epoch=2)
    assert time.monotonic() - began_s < 0.5
    assert [name.broker_id for name in slave.last.group.in_sync] == [0, 1, 2]
    await third.until(lambda: third.last.epoch == 2)
    await asyncio.sleep(0.5)
    assert slave.last.epoch == 2, "the resignation of epoch 1 says nothing about epoch 2"


async def test_a_resigned_master_is_elected_again_when_its_successor_dies_at_once(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await two_in_sync(server, make_replica)
    slave.kill()
    answer = await master.beat(resigned_epoch=1, successor_id=1)
    assert (answer.role, answer.epoch, answer.group.master_id) == (common_pb2.SLAVE, 2, 1)
    await master.until_master(epoch=3)
    assert [name.broker_id for name in master.last.group.in_sync] == [0]


async def test_a_resigned_master_whose_successor_is_gone_already_is_elected_again_at_once(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await two_in_sync(server, make_replica)
    await end_lease(etcd, cluster, slave)
    answer = await master.beat(resigned_epoch=1, successor_id=1)
    assert (answer.role, answer.epoch, answer.group.master_id) == (common_pb2.MASTER, 2, 0)


async def test_an_older_heartbeat_takes_no_resignation_back(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    """The broker went over to another nameserver; the first one works off what it still has."""
    one, two = [await start_nameserver(shared_etcd.endpoint) for _ in range(2)]
    old = make_replica(0, "m1", lease_ms=30_000)
    await old.connect(one)
    moved = make_replica(0, "m1", lease_ms=30_000, resigned_epoch=7)
    await moved.connect(two)
    await old.beat(log_end=5)
    entry = await etcd.get(Keys(cluster).broker(BrokerKey("broker-a", 0)))
    assert entry is not None
    record = Keys(cluster).decode(entry)
    assert isinstance(record, BrokerRecord)
    assert record.resigned_epoch == 7


async def test_a_leaving_master_is_followed_at_once(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = await two_in_sync(server, make_replica, lease_ms=30_000)
    began_s = time.monotonic()
    await master.leave()
    await slave.until_master(epoch=2)
    assert time.monotonic() - began_s < 1.0
