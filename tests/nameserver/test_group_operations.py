"""What an operator sees of broker groups and does to them; elections around an etcd outage."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.stored import BrokerKey, Keys
from aerobee.rpc.own_protocol import CODE_METADATA_KEY
from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb

NAME = "broker-a"
UNASKED_S = 5
"""Far less than the interval of heartbeats, more than one stall of etcd."""


def code_of(error: grpc.aio.AioRpcError) -> int:
    return int(str(dict(error.trailing_metadata() or ())[CODE_METADATA_KEY]))


async def remove(server: Any, broker_id: int, name: str = NAME) -> pb.GroupRecord:
    request = pb.RemoveReplicaRequest(broker_name=name, broker_id=broker_id)
    record: pb.GroupRecord = await server.stub.RemoveReplica(request)
    return record


async def alter(server: Any, group: pb.GroupRecord, *replicas: Any) -> pb.GroupRecord:
    record: pb.GroupRecord = await server.stub.AlterInSyncSet(
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
    return record


async def end_lease(etcd: Etcd, cluster: str, replica: Any) -> None:
    replica.kill()
    entry = await etcd.get(Keys(cluster).broker(BrokerKey(NAME, replica.broker_id)))
    assert entry is not None
    await etcd.revoke_lease(entry.lease_id)


async def test_a_cluster_is_described_with_its_groups(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = make_replica(0, "m1"), make_replica(1, "s1")
    single = make_replica(0, "b1", name="broker-b", address="127.0.0.1:7")
    for one in (master, slave, single):
        await one.connect(server)
    await alter(server, slave.last.group, master, slave)
    await slave.until(lambda: len(slave.last.group.in_sync) == 2)
    cluster = await server.stub.DescribeCluster(pb.DescribeClusterRequest())
    assert [group.broker_name for group in cluster.groups] == ["broker-a", "broker-b"]
    assert cluster.groups[0] == slave.last.group
    assert cluster.groups[1] == single.last.group
    assert [broker.role for broker in cluster.brokers] == [
        common_pb2.MASTER,
        common_pb2.SLAVE,
        common_pb2.MASTER,
    ]


async def test_replicas_are_pushed_each_change_of_their_group_at_once(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    one, two = [await start_nameserver(shared_etcd.endpoint) for _ in range(2)]
    master = make_replica(0, "m1", lease_ms=30_000)
    await master.connect(one)
    slave = make_replica(1, "s1", lease_ms=30_000)
    await slave.connect(two)
    await master.until(lambda: list(master.last.group.replicas) == [0, 1], timeout_s=UNASKED_S)
    assert [end.address for end in master.last.replicas] == [master.address, slave.address]
    await alter(one, master.last.group, master, slave)
    for replica in (master, slave):
        await replica.until(lambda r=replica: len(r.last.group.in_sync) == 2, timeout_s=UNASKED_S)
        revisions = [directive.group.revision for directive in replica.directives]
        assert revisions == sorted(revisions)
        assert replica.last.renewed_sequence == 1, "news confirm no renewal"


async def test_a_replica_that_has_gone_for_good_is_removed(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = make_replica(0, "m1", lease_ms=30_000), make_replica(1, "s1")
    await master.connect(server)
    await slave.connect(server)
    await end_lease(etcd, cluster, slave)
    answer = await remove(server, 1)
    assert list(answer.replicas) == [0]
    await master.until(lambda: list(master.last.group.replicas) == [0], timeout_s=UNASKED_S)
    returned = slave.restarted("s2")
    await returned.connect(server)
    assert list(returned.last.group.replicas) == [0, 1], "it is a new replica"


async def test_a_replica_that_may_be_needed_is_not_removed(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, etcd: Etcd, cluster: str
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = make_replica(0, "m1", lease_ms=30_000), make_replica(1, "s1", lease_ms=30_000)
    await master.connect(server)
    await slave.connect(server)

    async def refusal(broker_id: int, name: str = NAME) -> tuple[int, str]:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await remove(server, broker_id, name)
        return code_of(refused.value), refused.value.details() or ""

    assert await refusal(0) == (common_pb2.INVALID_ARGUMENT, _containing("alive"))
    assert await refusal(1) == (common_pb2.INVALID_ARGUMENT, _containing("alive"))
    assert await refusal(5) == (common_pb2.INVALID_ARGUMENT, _containing("no replica 5"))
    assert await refusal(0, "broker-x") == (common_pb2.GROUP_NOT_FOUND, _containing("broker-x"))
    await alter(server, slave.last.group, master, slave)
    await end_lease(etcd, cluster, slave)
    assert await refusal(1) == (common_pb2.INVALID_ARGUMENT, _containing("all messages"))
    await end_lease(etcd, cluster, master)
    assert await refusal(0) == (common_pb2.INVALID_ARGUMENT, _containing("all messages"))


async def test_a_stranger_cannot_change_an_in_sync_set(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    master, slave = make_replica(0, "m1"), make_replica(1, "s1")
    await master.connect(server)
    await slave.connect(server)
    group = pb.GroupRecord()
    group.CopyFrom(slave.last.group)
    group.master_instance = "m0"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await alter(server, group, master, slave)
    assert code_of(refused.value) == common_pb2.STALE_EPOCH
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await alter(server, slave.last.group, slave)
    assert code_of(refused.value) == common_pb2.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.AlterInSyncSet(pb.AlterInSyncSetRequest(cluster="another"))
    assert code_of(refused.value) == common_pb2.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "change", [{"log_epoch": -1}, {"log_epoch": 2**62}, {"log_end": -1}, {"successor_id": -5}]
)
async def test_a_heartbeat_with_impossible_numbers_is_refused(
    shared_etcd: Any, start_nameserver: Any, make_replica: Any, change: dict[str, int]
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    good = make_replica(0, "m1")
    await good.connect(server)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await good.beat(**change)
    assert code_of(refused.value) == common_pb2.INVALID_ARGUMENT
    again = make_replica(0, "m1")
    assert (await again.connect(server)).epoch == 1


# ---------------------------------------------------------------------------------- outages


async def test_an_etcd_restart_changes_no_master_while_all_replicas_live(
    own_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    own_etcd.start()
    server = await start_nameserver(own_etcd.endpoint)
    master, slave = make_replica(0, "m1", lease_ms=2_000), make_replica(1, "s1", lease_ms=2_000)
    for one in (master, slave):
        await one.connect(server)
    await alter(server, slave.last.group, master, slave)
    for one in (master, slave):
        one.keep_beating()
    await asyncio.to_thread(own_etcd.kill)
    await master.until(lambda: master.last.stale)
    renewed = master.last.renewed_sequence
    await asyncio.sleep(2.5)
    assert master.last.renewed_sequence == renewed, "nothing was confirmed meanwhile"
    await asyncio.to_thread(own_etcd.start)
    await master.until(lambda: not master.last.stale and master.last.renewed_sequence > renewed)
    await asyncio.sleep(1.0)
    assert (master.is_master, master.last.epoch) == (True, 1)
    assert len(master.last.group.in_sync) == 2


@pytest.mark.thorough
async def test_a_master_that_dies_while_etcd_is_away_is_followed_when_it_is_back(
    own_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    own_etcd.start()
    server = await start_nameserver(own_etcd.endpoint)
    master, slave = make_replica(0, "m1"), make_replica(1, "s1")
    for one in (master, slave):
        await one.connect(server)
    await alter(server, slave.last.group, master, slave)
    slave.keep_beating()
    await asyncio.to_thread(own_etcd.kill)
    master.kill()
    await slave.until(lambda: slave.last.stale)
    await asyncio.sleep(1.5)
    assert not slave.is_master, "nobody knows whether the master lives"
    await asyncio.to_thread(own_etcd.start)
    await slave.until_master(epoch=2)


async def test_a_master_cut_off_from_etcd_with_its_nameserver_is_followed_through_another(
    link: Any, shared_etcd: Any, start_nameserver: Any, make_replica: Any
) -> None:
    there, here = (
        await start_nameserver(link.endpoint),
        await start_nameserver(shared_etcd.endpoint),
    )
    master, slave = make_replica(0, "m1"), make_replica(1, "s1")
    await master.connect(there)
    await slave.connect(here)
    await alter(here, slave.last.group, master, slave)
    for one in (master, slave):
        one.keep_beating()
    link.silence()
    await slave.until_master(epoch=2)
    await master.until(lambda: master.last.stale)
    confirmed = master.last.renewed_sequence
    assert confirmed < master.sequence, "the lease that it counts by ended before the election"
    await link.heal()
    await master.until(lambda: not master.last.stale and master.last.renewed_sequence > confirmed)
    answer = next(one for one in master.directives if one.renewed_sequence > confirmed)
    assert (answer.role, answer.epoch) == (common_pb2.SLAVE, 2), "told with the very renewal"


class _containing(str):
    """Equal to every text that it is a part of."""

    def __eq__(self, other: object) -> bool:
        return str(self) in str(other)

    __hash__ = str.__hash__
