"""Two users with one client id are two clients: neither hears what the other is asked, nor releases
or keeps what the other has. In one process, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.access.running import FORWARDED_USER_KEY
from aerobee.broker.config import TransactionsConfig
from aerobee.broker.transactions.feature import Transactions
from aerobee.rpc.grpc_config import Engine
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.v1 import broker_pb2, common_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.transactions.test_checks_elsewhere import Node
from tests.support.grpcio_client import build_channel
from tests.support.known_users import KnownUsers
from tests.support.transactions import ORDERS, Asked, half_message, transactional
from tests.support.v2_calls import V2, codes, sent_message
from tests.support.waiting import until

SAME_ID = "host@1@0@abc"
SOON = TransactionsConfig(timeout_ms=1, check_interval_ms=50, checks_max=100_000)
TOPICS = {
    ORDERS: transactional(),
    "jobs": TopicConfig(name="jobs", read_queue_count=1, write_queue_count=1),
}
SHOP = ("Allow Topic:orders Pub", "Allow Topic:jobs Pub,Sub", "Allow Group:workers Sub")


@pytest.fixture
def users(tmp_path: Path) -> KnownUsers:
    """`shop` uses two topics; `nobody` may do nothing."""
    return KnownUsers(tmp_path, shop=SHOP, nobody=())


@pytest.fixture
async def broker(start_broker: StartBroker, users: KnownUsers) -> RunningBroker:
    broker = await start_broker(topics=TOPICS, transactions=SOON, access=users.config)
    users.tell(broker.access.book)
    return broker


@pytest.fixture
async def node(broker: RunningBroker, users: KnownUsers) -> AsyncIterator[grpc.aio.Channel]:
    """A node without a store in front of the broker."""
    node = Node("node", broker.port, Engine.OWN, users.node())
    port = await node.server.start("127.0.0.1:0")
    async with build_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await node.stop()


def client(users: KnownUsers, channel: Any, user: str, **metadata: str) -> V2:
    return V2(channel, {"x-mq-client-id": SAME_ID, **users.proof(user), **metadata})


async def begin(producer: V2, transaction_id: str) -> None:
    answer = await producer.send(half_message(transaction_id, b"salaries"))
    assert codes(answer.entries) == [v2.OK]


async def asked_of_both(users: KnownUsers, channel: Any) -> None:
    """Questions go to the user that sent the message, although another claims its id later."""
    shop = await Asked(client(users, channel, "shop"), ORDERS).open()
    nobody = await Asked(client(users, channel, "nobody")).open()
    await begin(shop.client, "T-1")
    await until(lambda: len(shop.asked) > 3)
    assert not nobody.asked
    await shop.close()
    await begin(shop.client, "T-2")
    await asyncio.sleep(0.3)  # six scans, in which nobody is there to be asked
    assert not nobody.asked
    await nobody.close()


async def test_a_question_never_reaches_another_user_with_the_producers_client_id(
    users: KnownUsers, broker: RunningBroker
) -> None:
    await asked_of_both(users, broker.channel)


async def test_nor_does_it_by_way_of_another_node(users: KnownUsers, node: Any) -> None:
    await asked_of_both(users, node)


async def test_who_may_no_longer_send_is_not_asked_on_a_stream_that_stays_open(
    users: KnownUsers, broker: RunningBroker
) -> None:
    """A stream that named no topic needs no right, so a policy does not end it."""
    shop = await Asked(client(users, broker.channel, "shop")).open()
    await begin(shop.client, "T-1")
    await until(lambda: shop.asked)
    users.may("shop", "Allow Topic:jobs Pub")
    count = len(shop.asked)
    checks = broker.feature(Transactions).checks
    unasked = checks.unasked
    await until(lambda: checks.unasked > unasked + 3)
    assert len(shop.asked) <= count + 1  # one was on its way
    users.may("shop", *SHOP)
    await until(lambda: len(shop.asked) > count + 3)
    await shop.close()


async def holding(users: KnownUsers, channel: Any) -> tuple[V2, v2.Message]:
    """A worker that has a message for as long as it lives."""
    worker = client(users, channel, "shop")
    assert codes((await worker.send(sent_message("jobs"))).entries) == [v2.OK]
    received = await worker.receive("jobs", "workers", auto_renew=True)
    assert received.ids == ["ID-1"]
    return worker, received.messages[0]


async def test_another_user_with_a_clients_id_neither_ends_it_nor_keeps_it_alive(
    users: KnownUsers, broker: RunningBroker
) -> None:
    worker, message = await holding(users, broker.channel)
    clients = broker.clients
    gone: list[str] = []
    clients.on_gone = gone.append
    shop = clients.get(f"shop/{SAME_ID}")
    assert shop is not None
    nobody = client(users, broker.channel, "nobody")
    stream = await Asked(nobody).open()
    shop.heard_s = heard_s = shop.heard_s - 30
    beat = await nobody.call("Heartbeat", service_pb2.HeartbeatRequest())
    assert (beat.status.code, shop.heard_s) == (v2.OK, heard_s)
    await stream.close()
    ended = await nobody.call(
        "NotifyClientTermination", service_pb2.NotifyClientTerminationRequest()
    )
    assert ended.status.code == v2.OK
    await until(lambda: gone == [f"nobody/{SAME_ID}"] * 2)
    assert shop.gone_s is None
    assert await worker.acknowledge("workers", message) == [v2.OK]


async def test_the_user_travels_with_a_call_that_a_node_passes_on(
    users: KnownUsers, broker: RunningBroker, node: Any
) -> None:
    worker, message = await holding(users, node)
    clients = broker.clients
    assert clients.get(f"shop/{SAME_ID}") is not None
    nobody = client(users, node, "nobody")
    await nobody.call("NotifyClientTermination", service_pb2.NotifyClientTerminationRequest())
    shop = clients.get(f"shop/{SAME_ID}")
    assert shop is not None
    assert shop.gone_s is None
    beat = service_pb2.HeartbeatRequest(
        group=v2.Resource(name="workers"), client_type=v2.PUSH_CONSUMER
    )
    await worker.call("Heartbeat", beat)
    described = broker.clients.members("workers")
    assert [(each.user, each.client_id) for each in described] == [("shop", SAME_ID)]
    await worker.call("NotifyClientTermination", service_pb2.NotifyClientTerminationRequest())
    assert shop.gone_s is not None
    assert await worker.acknowledge("workers", message) == [v2.OK]


async def test_a_user_that_says_it_is_passed_on_for_another_is_itself(
    users: KnownUsers, broker: RunningBroker
) -> None:
    liar = client(users, broker.channel, "nobody", **{FORWARDED_USER_KEY: "shop"})
    await liar.call("Heartbeat", service_pb2.HeartbeatRequest())
    clients = broker.clients
    assert clients.get(f"nobody/{SAME_ID}") is not None
    assert clients.get(f"shop/{SAME_ID}") is None


async def test_two_users_with_one_id_take_turns_in_a_group_as_two_members(
    users: KnownUsers, broker: RunningBroker
) -> None:
    """Each gives up only what it has: its own repeated poll, its own dead letter by id."""
    users.may("bank", *SHOP)
    shop, message = await holding(users, broker.channel)
    bank = client(users, broker.channel, "bank")
    assert not (await bank.receive("jobs", "workers", auto_renew=True, wait_s=0.1)).ids
    assert await bank.forward("workers", message, by_id=True) == v2.INVALID_RECEIPT_HANDLE
    group = await broker.groups.DescribeGroup(
        broker_pb2.DescribeGroupRequest(group="workers"), metadata=operator(broker, "DescribeGroup")
    )
    assert [member.client_id for member in group.members] == [SAME_ID] * 2
    assert await shop.forward("workers", message, by_id=True) == v2.OK


def operator(broker: RunningBroker, method: str, service: str = "GroupService") -> Any:
    return broker.access.credentials.metadata(f"/aerobee.v1.{service}/{method}")


# ------------------------------------------------------------------------------ our own protocol


async def test_a_members_session_belongs_to_its_user(
    users: KnownUsers, broker: RunningBroker
) -> None:
    users.may("bank", *SHOP)
    join = broker_pb2.Join(group="workers", client_id="w", instance="i", session_timeout_ms=30_000)
    event = broker_pb2.MemberEvent(join=join)

    async def joined(user: str) -> Any:
        call = broker.groups.Membership(metadata=tuple(users.proof(user).items()))
        await call.write(event)
        return call, await call.read()

    first, answer = await joined("shop")
    assert answer.HasField("joined")
    second, answer = await joined("bank")
    assert answer.failed.code == common_pb2.DUPLICATE_CLIENT
    again, answer = await joined("shop")
    assert answer.HasField("joined")
    for call in (first, second, again):
        call.cancel()


async def test_a_check_stream_gets_no_question_that_its_user_may_not_see_now(
    users: KnownUsers, broker: RunningBroker
) -> None:
    asked = broker.feature(Transactions).asked
    may = {"orders"}
    with asked.joined(["orders"], may_send=may.__contains__) as producer:
        shop = client(users, broker.channel, "shop")
        await begin(shop, "T-1")
        assert (await producer.next()).half.transaction_id == "T-1"
        await until(lambda: producer.waiting > 0)
        may.clear()  # one is on its way, and stays here
        getting = asyncio.create_task(producer.next())
        unasked = broker.feature(Transactions).checks.unasked
        await until(lambda: broker.feature(Transactions).checks.unasked > unasked + 3)
        assert not getting.done()
        assert producer.waiting == 0
        may.add("orders")
        assert (await getting).half.transaction_id == "T-1"
