"""Clients outside come through load balancers; everything between nodes stays inside.

The balancers are TCP forwarders of this process, one for each node. Nodes are real processes.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import DESCRIBE_CLUSTER
from aerobee.producer_client import Message, Producer
from aerobee.v1 import nameserver_pb2, nameserver_pb2_grpc
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.faults.ordered_cluster import (
    CLUSTER,
    GROUP,
    HOST,
    TOPIC,
    OrderedCluster,
    open_traffic,
)
from tests.rocketmq_api.official.clients import running_client
from tests.rocketmq_api.official.programs import PROGRAMS
from tests.rocketmq_api.official.scene import received
from tests.support.dying_path import DyingPath, dying_path
from tests.support.ports import free_ports
from tests.support.v2_calls import V2

pytestmark = pytest.mark.slow


class OutsideCluster(OrderedCluster):
    """Each node has an outside listener, with a load balancer in front of it."""

    def __init__(self, root: Path, replicas: int) -> None:
        super().__init__(root, replicas=replicas)
        self.outside_ports = free_ports(1 + replicas)
        self.balancers: list[DyingPath] = []
        """Of the nameserver, then of each broker."""

    @property
    def access_point(self) -> str:
        return self.balancers[0].address

    @property
    def broker_balancers(self) -> set[str]:
        return {each.address for each in self.balancers[1:]}

    @property
    def inside(self) -> set[str]:
        return {place.address for place in self.brokers}

    def _nameserver_argv(self) -> list[str]:
        return [*super()._nameserver_argv(), "--outside-listen", f"{HOST}:{self.outside_ports[0]}"]

    def _broker_argv(self, broker_id: int) -> list[str]:
        return [
            *super()._broker_argv(broker_id),
            *("--outside-listen", f"{HOST}:{self.outside_ports[1 + broker_id]}"),
            *("--outside-address", self.balancers[1 + broker_id].address),
            *("--zone", f"zone-{broker_id}"),
        ]

    async def described(
        self, channels: Channels, address: str
    ) -> nameserver_pb2.ClusterDescription:
        request = nameserver_pb2.DescribeClusterRequest(cluster=CLUSTER)
        return await channels.call(address, DESCRIBE_CLUSTER, request)

    def dialled_by_nodes(self) -> set[int]:
        """The ports of this machine that the nodes have connections to."""
        pids = [
            process.process_id
            for name, process in self._processes.items()
            if name != "etcd" and process.process_id is not None
        ]
        inodes = {inode for pid in pids for inode in _sockets_of(pid)}
        return {port for inode, port in _connections() if inode in inodes}


def _sockets_of(process_id: int) -> Iterable[str]:
    folder = Path(f"/proc/{process_id}/fd")
    for name in os.listdir(folder):
        with suppress(OSError):  # closed meanwhile
            target = os.readlink(folder / name)
            if target.startswith("socket:["):
                yield target.removeprefix("socket:[").removesuffix("]")


def _connections() -> Iterable[tuple[str, int]]:
    """Inode and the other end's port of every connection that is open."""
    for table in ("tcp", "tcp6"):  # some libraries take sockets of IPv6 for IPv4
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "01":  # established
                yield fields[9], int(fields[2].rpartition(":")[2], 16)


@asynccontextmanager
async def outside_cluster(root: Path, replicas: int) -> AsyncIterator[OutsideCluster]:
    cluster = OutsideCluster(root, replicas)
    async with AsyncExitStack() as stack:
        for port in cluster.outside_ports:
            cluster.balancers.append(await stack.enter_async_context(dying_path(port)))
        try:
            for name in ("etcd", "nameserver", *map(str, range(replicas))):
                await cluster.start(name)
            await cluster.ready(*map(str, range(replicas)))
            yield cluster
        finally:
            await cluster.kill_all()


@asynccontextmanager
async def open_channels() -> AsyncIterator[Channels]:
    channels = Channels()
    try:
        yield channels
    finally:
        await channels.close()


def shown(answer: service_pb2.QueryRouteResponse) -> set[str]:
    """The addresses that one of Apache's clients would connect to."""
    return {
        f"{address.host}:{address.port}"
        for queue in answer.message_queues
        for address in queue.broker.endpoints.addresses
    }


async def test_clients_outside_see_outside_addresses_and_nodes_use_none_of_them(
    tmp_path: Path,
) -> None:
    async with outside_cluster(tmp_path, 2) as cluster, open_channels() as channels:
        # Work, and the addresses that it went to.
        async with open_traffic(cluster, access_point=cluster.access_point) as traffic:
            await traffic.both_after(time.monotonic(), cluster)
            outside = {*cluster.outside_ports, *(_port(each.address) for each in cluster.balancers)}
            dialled = cluster.dialled_by_nodes()
            assert {_port(cluster.nameserver.address), _port(cluster.etcd.address)} <= dialled
            assert dialled & {place.port for place in cluster.brokers}, "a slave follows its master"
            assert not dialled & outside
        await traffic.all_read(cluster)
        assert traffic.sent
        assert any(each.connections for each in cluster.balancers[1:])

        for address, expected in (
            (cluster.access_point, cluster.broker_balancers),
            (cluster.nameserver.address, cluster.inside),
        ):
            description = await cluster.described(channels, address)
            assert {broker.address for broker in description.brokers} == expected
            assert {beat.address for beat in description.last_heartbeats} == expected
            assert {broker.zone for broker in description.brokers} == {"zone-0", "zone-1"}

        # On any node, Apache's API tells each caller the addresses of the listener that it asked.
        description = await cluster.described(channels, cluster.nameserver.address)
        for asked, known in (
            ([each.address for each in cluster.balancers], cluster.broker_balancers),
            ([cluster.nameserver.address, *cluster.inside], cluster.inside),
        ):
            for address in asked:
                async with grpc.aio.insecure_channel(address) as channel:
                    client = V2(channel)
                    resource = v2.Resource(name=TOPIC)
                    route = await client.route(TOPIC)
                    assert shown(route) <= known
                    assert shown(route)
                    assignment = await client.call(
                        "QueryAssignment",
                        service_pb2.QueryAssignmentRequest(
                            topic=resource, group=v2.Resource(name="billing")
                        ),
                    )
                    (each,) = assignment.assignments
                    (place,) = each.message_queue.broker.endpoints.addresses
                    assert {f"{place.host}:{place.port}"} == shown(route)

        # What nodes do among themselves is refused there, also to nodes.
        async with grpc.aio.insecure_channel(cluster.access_point) as channel:
            stub = nameserver_pb2_grpc.NameserverServiceStub(channel)
            with pytest.raises(grpc.aio.AioRpcError, match="outside listener"):
                await stub.AlterInSyncSet(nameserver_pb2.AlterInSyncSetRequest(cluster=CLUSTER))
            with pytest.raises(grpc.aio.AioRpcError, match="outside listener"):
                await stub.Register().read()
        async with grpc.aio.insecure_channel(cluster.balancers[1].address) as channel:
            for path in ("ReplicationService/Replicate", "RingService/Rings"):
                stream: Any = channel.stream_stream(f"/aerobee.v1.{path}")
                with pytest.raises(grpc.aio.AioRpcError, match="outside listener"):
                    await stream().read()

        # The balancers fall silent: replicas go on, and in sync.
        for balancer in cluster.balancers:
            balancer.die()
        began_s = time.monotonic()
        async with Producer(cluster.nameserver.address, CLUSTER) as producer:
            while time.monotonic() - began_s < 1.5 * 2.0:  # longer than a lease
                await producer.send(Message(TOPIC, b"after"))
        description = await cluster.described(channels, cluster.nameserver.address)
        (group,) = description.groups
        assert (group.broker_name, len(group.in_sync)) == (GROUP, 2)
        assert group.epoch == 1, "no master was replaced"


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def test_an_official_client_works_through_the_outside_listener_alone(tmp_path: Path) -> None:
    program = PROGRAMS["python"]
    if program.missing:
        pytest.skip(program.missing)

    def use(access_point: str) -> list[str]:
        with (
            running_client(program, "producer", access_point, TOPIC, home=tmp_path) as producer,
            running_client(
                program, "simple", access_point, "billing", TOPIC, home=tmp_path
            ) as reader,
        ):
            sent = producer.ask("send", topic=TOPIC, body="hello")
            assert "id" in sent, sent
            return [message["body"] for message in received(reader, 1)]

    async with outside_cluster(tmp_path, 1) as cluster:
        async with Producer(cluster.access_point, CLUSTER) as producer:
            await producer.send(Message(TOPIC, b"hello"))  # which makes the topic
        # Not by way of the addresses inside: nobody but the balancers connects to the broker.
        assert set(await asyncio.to_thread(use, cluster.access_point)) == {"hello"}
        assert cluster.balancers[1].connections >= 3
