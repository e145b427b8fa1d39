"""Registration: who is in the routes, when they leave, and who is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.key_values import Delete, LeaseNotFound
from aerobee.nameserver.stored import BrokerKey, Keys
from aerobee.rpc.own_protocol import CODE_METADATA_KEY
from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.waiting import until


async def live(server: Any) -> list[str]:
    """Instances that the routes show."""
    cluster = await server.stub.DescribeCluster(pb.DescribeClusterRequest())
    return [endpoint.identity.instance for endpoint in cluster.brokers]


def code_of(error: grpc.aio.AioRpcError) -> int:
    return int(str(dict(error.trailing_metadata() or ())[CODE_METADATA_KEY]))


async def test_a_broker_is_registered_as_master_of_its_group(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    broker = make_broker("broker-a")
    await running(broker, server)
    first = broker.directives[0]
    assert first.status.code == common_pb2.OK
    assert not first.stale
    assert first.lease_duration_ms == 1_000
    await until(lambda: _is(live(server), ["instance-1"]))
    description = await server.stub.DescribeCluster(pb.DescribeClusterRequest())
    endpoint = description.brokers[0]
    assert (endpoint.address, endpoint.role, endpoint.epoch, endpoint.writable) == (
        broker.address,
        common_pb2.MASTER,
        1,
        True,
    )
    assert 0 <= description.heartbeat_age_ms[0] < 5_000
    assert description.last_heartbeats[0].identity.instance == "instance-1"


async def test_a_second_replica_is_a_slave(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    replica = make_broker("broker-a", broker_id=1)
    await running(make_broker("broker-a"), server)
    await running(replica, server)
    await until(lambda: _is(_last_role(replica), common_pb2.SLAVE))


async def test_a_dead_broker_leaves_the_routes_when_its_lease_ends(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    await running(make_broker("broker-a"), server)
    dying = await running(make_broker("broker-b"), server)
    await until(lambda: _is(live(server), ["instance-1", "instance-2"]))
    dying.cancel()
    await asyncio.sleep(0.3)
    assert await live(server) == ["instance-1", "instance-2"], "a lost stream is not a dead broker"
    await until(lambda: _is(live(server), ["instance-1"]), timeout_s=5)


async def test_a_leaving_broker_is_gone_at_once(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    broker = make_broker("broker-a", lease_ms=60_000)
    call = server.stub.Register()
    await call.write(broker.heartbeat())
    assert (await call.read()).status.code == common_pb2.OK
    await until(lambda: _is(live(server), ["instance-1"]))
    await call.write(broker.heartbeat(leaving=True))
    assert await call.read() is grpc.aio.EOF
    await until(lambda: _is(live(server), []), timeout_s=2)
    successor = make_broker("broker-a")
    await running(successor, server)
    assert successor.directives, "the identity is free again"


async def test_a_restarted_broker_at_the_same_address_takes_its_place_at_once(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    killed = make_broker("broker-a", lease_ms=60_000)
    task = await running(killed, server)
    task.cancel()
    await running(make_broker("broker-a", address=killed.address), server)
    await until(lambda: _is(live(server), ["instance-2"]), timeout_s=2)


async def test_a_successor_ends_the_lease_of_the_one_before(
    shared_etcd: Any,
    etcd: Etcd,
    cluster: str,
    start_nameserver: Any,
    make_broker: Any,
    running: Any,
) -> None:
    """Whatever still keeps that one alive, it renews nothing any more."""
    server = await start_nameserver(shared_etcd.endpoint)
    killed = make_broker("broker-a", lease_ms=60_000)
    task = await running(killed, server)
    before = await etcd.get(Keys(cluster).broker(BrokerKey("broker-a", 0)))
    assert before is not None
    assert (await etcd.keep_alive(before.lease_id)).duration_ms == 60_000
    task.cancel()
    await running(make_broker("broker-a", address=killed.address), server)
    with pytest.raises(LeaseNotFound):
        await etcd.keep_alive(before.lease_id)


async def test_a_process_is_succeeded_once_it_is_not_heard_any_more_and_does_not_come_back(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    first = make_broker("broker-a", lease_ms=30_000)
    first_task = await running(first, server)
    second = make_broker("broker-a", address=first.address)
    assert (await running(second, server)).done(), "refused while the first one is heard"
    assert await live(server) == ["instance-1"]
    first_task.cancel()
    await running(second, server)
    assert await live(server) == ["instance-2"]
    assert (await running(first, server)).done(), "it was succeeded"
    assert await live(server) == ["instance-2"]


async def test_a_second_live_broker_with_the_same_identity_is_refused_until_the_first_is_dead(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    first = make_broker("broker-a")
    first_task = await running(first, server)
    second = make_broker("broker-a")
    call = server.stub.Register()
    await call.write(second.heartbeat())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert code_of(caught.value) == common_pb2.DUPLICATE_BROKER
    assert first.address in (caught.value.details() or "")
    assert await live(server) == ["instance-1"]

    async def first_is_heard() -> bool:
        cluster = await server.stub.DescribeCluster(pb.DescribeClusterRequest())
        return list(cluster.heartbeat_age_ms) >= [0]

    await until(first_is_heard)

    first_task.cancel()
    for _ in range(50):
        task = await running(second, server)
        if not task.done():
            break
        await asyncio.sleep(0.1)
    await until(lambda: _is(live(server), ["instance-2"]))


async def test_a_stream_that_moves_to_another_nameserver_keeps_its_lease(
    shared_etcd: Any,
    etcd: Etcd,
    cluster: str,
    start_nameserver: Any,
    make_broker: Any,
    running: Any,
) -> None:
    one = await start_nameserver(shared_etcd.endpoint)
    two = await start_nameserver(shared_etcd.endpoint)
    broker = make_broker("broker-a")
    (await running(broker, one)).cancel()
    key = Keys(cluster).broker(BrokerKey("broker-a", 0))
    before = await etcd.get(key)
    await running(broker, two)
    after = await etcd.get(key)
    assert before is not None
    assert after is not None
    assert before.lease_id == after.lease_id


async def test_a_lost_lease_is_replaced(
    shared_etcd: Any,
    etcd: Etcd,
    cluster: str,
    start_nameserver: Any,
    make_broker: Any,
    running: Any,
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    await running(make_broker("broker-a"), server)
    await until(lambda: _is(live(server), ["instance-1"]))
    key = Keys(cluster).broker(BrokerKey("broker-a", 0))
    before = await etcd.get(key)
    assert before is not None
    await etcd.revoke_lease(before.lease_id)

    async def has_new_lease() -> bool:
        found = await etcd.get(key)
        return found is not None and found.lease_id not in (0, before.lease_id)

    await until(has_new_lease)
    await until(lambda: _is(live(server), ["instance-1"]))


async def test_a_registration_that_an_operator_deleted_comes_back(
    shared_etcd: Any,
    etcd: Etcd,
    cluster: str,
    start_nameserver: Any,
    make_broker: Any,
    running: Any,
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    await running(make_broker("broker-a"), server)
    await until(lambda: _is(live(server), ["instance-1"]))
    await etcd.transaction({}, [Delete(Keys(cluster).broker(BrokerKey("broker-a", 0)))])
    await until(lambda: _is(live(server), []))
    await until(lambda: _is(live(server), ["instance-1"]))


async def test_a_broker_that_stops_accepting_shows_it_in_the_routes(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    broker = make_broker("broker-a")
    await running(broker, server)
    broker.writable = False

    async def writable() -> bool:
        cluster = await server.stub.DescribeCluster(pb.DescribeClusterRequest())
        return bool(cluster.brokers) and not cluster.brokers[0].writable

    await until(writable)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": "white space"}, common_pb2.ILLEGAL_NAME),
        ({"name": ""}, common_pb2.ILLEGAL_NAME),
        ({"broker_id": -1}, common_pb2.INVALID_ARGUMENT),
        ({"instance": ""}, common_pb2.INVALID_ARGUMENT),
        ({"address": ""}, common_pb2.INVALID_ARGUMENT),
        ({"address": "\x1b[2Jhost:1"}, common_pb2.INVALID_ARGUMENT),
        ({"instance": "a\nb"}, common_pb2.INVALID_ARGUMENT),
        ({"cluster": "another"}, common_pb2.INVALID_ARGUMENT),
    ],
)
async def test_a_heartbeat_that_does_not_say_who_it_is_is_refused(
    shared_etcd: Any,
    start_nameserver: Any,
    make_broker: Any,
    change: dict[str, Any],
    code: int,
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    broker = make_broker("broker-a")
    for name, value in change.items():
        setattr(broker, name, value)
    call = server.stub.Register()
    await call.write(broker.heartbeat())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert code_of(caught.value) == code


async def _is(asked: Any, expected: object) -> bool:
    return bool(await asked == expected)


async def _last_role(broker: Any) -> int:
    role: int = broker.directives[-1].role
    return role
