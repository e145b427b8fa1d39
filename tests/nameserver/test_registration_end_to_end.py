"""A broker's Registration against real nameservers and a real etcd."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from aerobee.broker.cluster.registration import Registration, RegistrationConfig
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.retry import Backoff
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.waiting import until


class RealBroker:
    """A Registration and the little that it needs of a broker."""

    def __init__(self, broker: Any, servers: list[Any]) -> None:
        self.metadata_revision = 0
        self.topics: dict[str, int] = {}
        self._broker = broker
        self.registration = Registration(
            RegistrationConfig(
                nameservers=tuple(server.address for server in servers),
                lease_duration_ms=1_000,
                backoff=Backoff(base_ms=10, max_ms=100),
            ),
            clock=SystemClock(),
            chance=random.Random(3),
            heartbeat=self.heartbeat,
            on_directive=self.follow,
            due=asyncio.Event(),
        )

    def heartbeat(self) -> pb.BrokerHeartbeat:
        heartbeat: pb.BrokerHeartbeat = self._broker.heartbeat()
        heartbeat.metadata_revision = self.metadata_revision
        return heartbeat

    async def follow(self, directive: pb.BrokerDirective) -> None:
        if directive.topics_complete:
            self.topics.clear()
        for topic in directive.topics:
            if topic.deleted:
                self.topics.pop(topic.name, None)
            else:
                self.topics[topic.name] = topic.queues_by_broker["broker-a"]
        self.metadata_revision = directive.metadata_revision


async def brokers_of(server: Any) -> int:
    return len((await server.stub.DescribeCluster(pb.DescribeClusterRequest())).brokers)


@pytest.mark.slow
async def test_a_broker_stays_in_the_routes_while_nameservers_come_and_go(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any
) -> None:
    servers = [await start_nameserver(shared_etcd.endpoint) for _ in range(3)]
    watcher = await start_nameserver(shared_etcd.endpoint)
    broker = RealBroker(make_broker("broker-a"), servers)
    registration = broker.registration
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(registration.run())
        await until(lambda: _equal(brokers_of(watcher), 1))
        for _ in range(2):
            used = registration.statistics().nameserver
            await next(server for server in servers if server.address == used).stop()

            async def moved(used: str = used) -> bool:
                now = registration.statistics()
                return now.registered and now.nameserver != used

            await until(moved)
            for _ in range(15):
                assert await brokers_of(watcher) == 1
                await asyncio.sleep(0.1)
        await registration.leave(2.0)
    await until(lambda: _equal(brokers_of(watcher), 0), timeout_s=0.8)


async def test_a_broker_learns_topics_and_forgets_them_as_the_cluster_does(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    broker = RealBroker(make_broker("broker-a"), [server])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(broker.registration.run())
        await until(lambda: _equal(brokers_of(server), 1))
        await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=3))
        assert broker.topics == {"orders": 3}, "the answer comes when the broker knows"
        await server.stub.UpdateTopic(pb.UpdateTopicRequest(name="orders", queues=5))
        assert broker.topics == {"orders": 5}
        await server.stub.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
        assert broker.topics == {}
        await broker.registration.leave(2.0)


async def _equal(asked: Any, expected: object) -> bool:
    return bool(await asked == expected)
