"""Who asks through the outside listener is told outside addresses, also beside older brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc

from aerobee.nameserver.key_values import KeyValue
from aerobee.nameserver.stored import BrokerKey, BrokerRecord, Keys
from aerobee.v1 import nameserver_pb2 as pb
from aerobee.v1 import nameserver_pb2_grpc
from tests.support.ports import free_port
from tests.support.waiting import until


async def addresses(stub: Any) -> Mapping[str, tuple[str, str]]:
    """By broker, of the route of `orders`."""
    (route,) = (await stub.QueryRoute(pb.QueryRouteRequest(topics=["orders"]))).routes
    return {
        each.identity.broker_name: (each.address, each.outside_address) for each in route.brokers
    }


async def test_routes_follow_outside_addresses_and_show_what_a_broker_has(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any
) -> None:
    outside = f"127.0.0.1:{free_port()}"
    server = await start_nameserver(shared_etcd.endpoint, outside=outside)
    new = make_broker("broker-a", address="a.inside:1", outside_address="lb-a:1")
    # As an older version registers, or one that has one listener for all.
    old = make_broker("broker-b", address="b.everywhere:1")
    async with grpc.aio.insecure_channel(outside) as channel, asyncio.TaskGroup() as tasks:
        stub: Any = nameserver_pb2_grpc.NameserverServiceStub(channel)
        running = [
            tasks.create_task(broker.beat_until_cancelled(server.stub, interval_s=0.05))
            for broker in (new, old)
        ]
        await until(lambda: new.directives and old.directives)
        await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=2))
        plain = ("b.everywhere:1", "")
        assert await addresses(stub) == {"broker-a": ("lb-a:1", ""), "broker-b": plain}
        # Inside, nodes are told both: they answer for those who come to them from outside.
        assert await addresses(server.stub) == {
            "broker-a": ("a.inside:1", "lb-a:1"),
            "broker-b": plain,
        }
        watched = stub.WatchRoutes(pb.WatchRoutesRequest(topics=["orders"]))
        first = await watched.read()
        assert first.routes[0].brokers[0].address == "lb-a:1"
        # As on the way to another machine, whose port it is outside.
        new.outside_address = "lb-a:2"
        second = await watched.read()
        assert second.routes[0].brokers[0].address == "lb-a:2"
        assert (await addresses(server.stub))["broker-a"] == ("a.inside:1", "lb-a:2")
        watched.cancel()
        for one in running:
            one.cancel()


def test_the_key_of_an_older_nameserver_has_one_address_for_all() -> None:
    keys, key = Keys("c"), BrokerKey("a", 0)
    value = b'{"instance":"i1","address":"h:1"}'
    assert keys.decode(KeyValue(keys.broker(key), value, 9)) == BrokerRecord(
        key, "i1", "h:1", revision=9, topics_known=None
    )
