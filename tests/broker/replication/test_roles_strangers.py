"""Strangers who know all that a nameserver tells anybody, in a group of real processes: none takes
a replica's place, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import LogState, Sender
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.cluster_view.methods import DESCRIBE_CLUSTER
from aerobee.v1 import broker_pb2, common_pb2, nameserver_pb2
from tests.support.bare_slave import BareSlave
from tests.support.etcd import running_etcd
from tests.support.grpcio_client import build_channel
from tests.support.replica_group import GROUP, MIB, ReplicaGroup, replica_group

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


@dataclass
class Stranger:
    """Says that it is a replica with an empty log, and acknowledges all that comes."""

    address: str
    sender: Sender
    name: ReplicaName
    instance: str
    streams: int = 0
    taken_bytes: int = 0

    async def run(self) -> None:
        """Again and again, until cancelled."""
        empty = LogState(0, 0, EpochHistory(), 4 * MIB)
        async with build_channel(self.address) as channel:
            while True:
                slave = BareSlave(channel, self.sender)
                await slave.hello(empty, self.name, instance=self.instance)
                self.streams += 1
                with contextlib.suppress(AssertionError, grpc.aio.AioRpcError, TimeoutError):
                    while True:
                        event = await slave.event()
                        if event.WhichOneof("event") == "bytes":
                            end = event.bytes.position + len(event.bytes.data)
                            self.taken_bytes += len(event.bytes.data)
                            await slave.write(slave.frames.ack(end, end))
                slave.cancel()


async def stranger_of(group: ReplicaGroup, broker_id: int, *, knows_instance: bool) -> Stranger:
    """One that has asked a nameserver for what it needs."""
    request = nameserver_pb2.DescribeClusterRequest(cluster=group.cluster)
    told = await group.channels.call(group.nameserver, DESCRIBE_CLUSTER, request)
    (record,) = told.groups
    (instance,) = (
        one.identity.instance for one in told.brokers if one.identity.broker_id == broker_id
    )
    (incarnation,) = (one.incarnation for one in record.in_sync if one.broker_id == broker_id)
    return Stranger(
        group.replicas[record.master_id].address,
        Sender(group.cluster, GROUP, record.epoch),
        ReplicaName(broker_id, incarnation),
        instance if knows_instance else "x",
    )


@pytest.mark.thorough
@pytest.mark.parametrize("knows_instance", [False, True])
async def test_nobody_acknowledges_for_a_slave_that_lives(
    tmp_path: Path, etcd: str, knows_instance: bool
) -> None:
    async with replica_group(tmp_path, etcd, (0, 1)) as group:
        await group.in_sync(0, 1)
        await group.create_topic("t")
        await group.send_until_stored("t", b"first")
        master = await group.master()
        slave = 1 - master
        stranger = await stranger_of(group, slave, knows_instance=knows_instance)
        acknowledged = [b"first"]
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(stranger.run())
            while stranger.streams < 3:
                ack = await group.send(master, "t", b"%d" % len(acknowledged))
                assert (ack.code, ack.durability) == (common_pb2.OK, broker_pb2.REPLICATED)
                acknowledged.append(b"%d" % len(acknowledged))
            task.cancel()
        assert stranger.taken_bytes == 0
        await group.replicas[master].kill()
        assert await group.send_until_stored("t", b"after") == slave
        assert await group.pull_all(slave, "t") == [*acknowledged, b"after"]
        assert list((await group.record()).unclean_epochs) == []
