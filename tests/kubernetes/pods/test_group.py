"""What the harness says of a group is what nameservers and brokers say: it is not healthy while one
of them is behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.serving import RpcServer
from aerobee.v1 import broker_pb2, broker_pb2_grpc, nameserver_pb2, nameserver_pb2_grpc
from tests.failover.world import GROUP
from tests.kubernetes.pods.group import PodGroup

REPLICAS = range(3)


class Nameserver(nameserver_pb2_grpc.NameserverServiceServicer):
    """Says what it is told to."""

    def __init__(self) -> None:
        in_sync = [nameserver_pb2.ReplicaName(broker_id=one) for one in REPLICAS]
        self.record = nameserver_pb2.GroupRecord(
            broker_name=GROUP, epoch=7, master_id=1, in_sync=in_sync, replicas=REPLICAS
        )
        self.stale = False
        self.asked = 0

    async def DescribeCluster(
        self, request: nameserver_pb2.DescribeClusterRequest, context: Any
    ) -> nameserver_pb2.ClusterDescription:
        self.asked += 1
        return nameserver_pb2.ClusterDescription(version=42, stale=self.stale, groups=[self.record])


class Broker(broker_pb2_grpc.AdminServiceServicer):
    """A master that takes messages."""

    async def GetStats(
        self, request: broker_pb2.GetStatsRequest, context: Any
    ) -> broker_pb2.BrokerStats:
        return broker_pb2.BrokerStats(writable=True)


@asynccontextmanager
async def served(servicer: Nameserver | Broker) -> AsyncIterator[str]:
    server = RpcServer(say_error, [])
    if isinstance(servicer, Nameserver):
        nameserver_pb2_grpc.add_NameserverServiceServicer_to_server(servicer, server.server)
    else:
        broker_pb2_grpc.add_AdminServiceServicer_to_server(servicer, server.server)
    try:
        yield f"127.0.0.1:{await server.start('127.0.0.1:0')}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def group_of(*nameservers: Nameserver) -> AsyncIterator[PodGroup]:
    """The first of the two nameservers stands first in the group's list."""
    first, second = nameservers
    async with served(first) as one, served(second) as other, served(Broker()) as broker:
        group = PodGroup(lambda: [one, other], lambda _: broker, REPLICAS)
        try:
            yield group
        finally:
            await group.close()


async def is_waited_for(group: PodGroup, nameserver: Nameserver) -> bool:
    """Whether `healthy` goes on asking, whatever it has heard."""
    enough = nameserver.asked + 3
    waiting = asyncio.ensure_future(group.healthy())
    while not waiting.done() and nameserver.asked < enough:
        await asyncio.sleep(0.01)
    is_waiting = not waiting.done()
    waiting.cancel()
    await asyncio.wait((waiting,))
    return is_waiting


@pytest.mark.parametrize("number", [0, 1])
async def test_a_group_is_healthy_only_while_every_nameserver_is_fresh(number: int) -> None:
    nameservers = Nameserver(), Nameserver()
    async with group_of(*nameservers) as group:
        assert await group.healthy() == 1
        nameservers[number].stale = True
        assert await is_waited_for(group, nameservers[number])
        nameservers[number].stale = False
        assert await group.healthy() == 1


async def test_a_group_is_not_healthy_while_nameservers_know_different_masters() -> None:
    nameservers = Nameserver(), Nameserver()
    nameservers[1].record.epoch, nameservers[1].record.master_id = 6, 0
    async with group_of(*nameservers) as group:
        assert await is_waited_for(group, nameservers[1])


async def test_the_groups_record_is_that_of_a_fresh_nameserver_if_there_is_one() -> None:
    nameservers = Nameserver(), Nameserver()
    nameservers[0].stale, nameservers[0].record.epoch = True, 6
    async with group_of(*nameservers) as group:
        assert (await group.record()).epoch == 7
        nameservers[1].stale = True
        assert (await group.record()).epoch == 6


async def test_an_account_shows_each_nameservers_answer_apart() -> None:
    nameservers = Nameserver(), Nameserver()
    nameservers[0].stale, nameservers[0].record.epoch = True, 6
    async with group_of(*nameservers) as group:
        first, second, *replicas = (await group.account()).splitlines()
    assert ": stale, version 42, master 1 () of epoch 6" in first
    assert ": fresh, version 42, master 1 () of epoch 7, in sync [0, 1, 2]" in second
    assert len(replicas) == len(REPLICAS)
