"""FastStream on a cluster, and its test client in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from faststream import AckPolicy, FastStream
from faststream.exceptions import (
    AckMessage,
    FeatureNotSupportedException,
    NackMessage,
    RejectMessage,
    SetupError,
    StopConsume,
)
from faststream.specification import AsyncAPI
from pydantic import BaseModel, ValidationError

from aerobee.client_core.admin_client import AdminClient
from aerobee.consumer_client import Reject, RetryLater, SimpleConsumer, StartFrom, sql
from aerobee.integrations.faststream import (
    AerobeeBroker,
    AerobeeResponse,
    AerobeeRouter,
    TestAerobeeBroker,
)
from aerobee.integrations.faststream.annotations import AerobeeMessage
from aerobee.producer_client.receipt import Receipt
from aerobee.runtime.errors import IllegalName, MessageIllegal, TopicNotFound
from tests.integrations.letters import next_letter
from tests.support.own_topic import OwnTopic
from tests.support.waiting import PATIENCE_S, until


class Order(BaseModel):
    id: int
    plugs: int = 1


def broker_of(own: OwnTopic, **options: Any) -> AerobeeBroker:
    return AerobeeBroker(own.nameservers, consumer_config=own.config, **options)


def reading(own: OwnTopic, **options: Any) -> dict[str, Any]:
    """Of a subscriber that begins with the oldest message."""
    return {"group": own.group_name, "start_from": StartFrom.FIRST, **options}


@asynccontextmanager
async def running(broker: AerobeeBroker) -> AsyncIterator[AerobeeBroker]:
    async with broker:
        await broker.start()
        yield broker


async def until_done(own: OwnTopic) -> None:
    """The group has finished everything."""
    async with AdminClient(own.nameservers) as admin:

        async def has_no_lag() -> bool:
            return (await admin.groups.describe(own.group_name)).lag == 0

        await until(has_no_lag)


async def configure(own: OwnTopic) -> None:
    """Failed messages come again at once, at most once."""
    async with AdminClient(own.nameservers) as admin:
        await admin.groups.configure(own.group_name, retries_max=1)


# ------------------------------------------------------------------------------ on a cluster


async def test_handlers_get_values_and_their_results_are_published(own: OwnTopic) -> None:
    broker = broker_of(own)
    bills: list[str] = []

    @broker.subscriber(own.topic, **reading(own))
    @broker.publisher(f"{own.topic}-bills", headers={"by": "tests"})
    async def bill(order: Order, message: AerobeeMessage) -> str:
        assert message.headers["from"] == "a shop"
        return f"order {order.id}: {order.plugs * 3}"

    @broker.subscriber(f"{own.topic}-bills", **reading(own))
    async def keep(text: str, message: AerobeeMessage) -> None:
        assert message.headers["by"] == "tests"
        bills.append(text)

    async with broker:
        await broker.publish("first", f"{own.topic}-bills", headers={"by": "tests"})
        await broker.start()
        receipt = await broker.publish(Order(id=7, plugs=2), own.topic, headers={"from": "a shop"})
        assert isinstance(receipt, Receipt)
        assert await broker.ping(5.0)
        await until(lambda: len(bills) == 2)
        await until_done(own)
    assert sorted(bills) == ["first", "order 7: 6"]
    assert not await broker.ping(0.1)


async def test_a_body_that_the_type_refuses_is_a_dead_letter(own: OwnTopic) -> None:
    broker = broker_of(own)
    seen: list[int] = []

    @broker.subscriber(own.topic, **reading(own))
    async def bill(order: Order) -> None:
        seen.append(order.id)

    await own.store([b'{"id": "x"}', b'{"id": 3}'])
    async with running(broker):
        letter = await next_letter(own)
        await until(lambda: seen == [3])
        await until_done(own)
    assert letter.body == b'{"id": "x"}'
    assert "valid integer" in letter.reason


async def test_a_body_that_is_not_of_its_content_type_is_a_dead_letter(own: OwnTopic) -> None:
    broker = broker_of(own)

    @broker.subscriber(own.topic, **reading(own))
    async def bill(order: Order) -> None: ...

    await own.store([b"{"], properties=[{"content-type": "application/json"}])
    async with running(broker):
        assert (await next_letter(own)).reason.startswith("the body is no application/json")


async def test_handlers_may_raise_our_answers(own: OwnTopic) -> None:
    broker = broker_of(own)
    times: list[float] = []
    loop = asyncio.get_running_loop()

    @broker.subscriber(own.topic, **reading(own))
    async def handle(text: str) -> None:
        if text == "never":
            raise Reject("no such customer")
        times.append(loop.time())
        if len(times) == 1:
            raise RetryLater("the bank is closed", after=timedelta(seconds=0.5))

    await own.store([b"never", b"later"])
    async with running(broker):
        letter = await next_letter(own)
        await until(lambda: len(times) == 2)
        await until_done(own)
    assert letter.body == b"never"
    assert letter.reason.startswith("no such customer [test_faststream.py:")
    assert times[1] - times[0] >= 0.5


async def test_handlers_may_raise_answers_of_faststream(own: OwnTopic) -> None:
    broker = broker_of(own)
    seen: list[str] = []

    @broker.subscriber(own.topic, **reading(own))
    async def handle(text: str) -> None:
        seen.append(text)
        if text == "rejected":
            raise RejectMessage(reason="no such customer")
        if text == "done":
            raise AckMessage
        if seen.count(text) == 1:
            raise NackMessage(after=0.1)

    await own.store([b"rejected", b"done", b"again"])
    async with running(broker):
        assert (await next_letter(own)).reason == "no such customer"
        await until(lambda: len(seen) == 4)
        await until_done(own)
    assert sorted(seen) == ["again", "again", "done", "rejected"]


@pytest.mark.parametrize(
    ("policy", "attempts", "is_dead"),
    [
        (None, 2, True),  # it comes again until its attempts are over
        (AckPolicy.NACK_ON_ERROR, 2, True),
        (AckPolicy.REJECT_ON_ERROR, 1, True),
        (AckPolicy.ACK, 1, False),
        (AckPolicy.ACK_FIRST, 1, False),
        (AckPolicy.MANUAL, 2, True),  # nobody acknowledges it
    ],
)
async def test_the_policy_says_what_becomes_of_a_failed_message(
    own: OwnTopic, policy: AckPolicy | None, attempts: int, is_dead: bool
) -> None:
    await configure(own)
    broker = broker_of(own) if policy is None else broker_of(own, ack_policy=policy)
    seen: list[int] = []

    @broker.subscriber(own.topic, **reading(own))
    async def handle(text: str) -> None:
        seen.append(1)
        raise ValueError(f"{text} is bad")

    await own.store([b"it"])
    async with running(broker):
        if is_dead:
            letter = await next_letter(own)
            assert letter.reason.startswith("ValueError: it is bad")
            assert letter.attempts == attempts
        await until(lambda: len(seen) == attempts)
        await until_done(own)
    assert len(seen) == attempts


async def test_a_message_is_acknowledged_by_hand(own: OwnTopic) -> None:
    broker = broker_of(own)
    seen: list[str] = []

    @broker.subscriber(own.topic, **reading(own, ack_policy=AckPolicy.MANUAL))
    async def handle(text: str, message: AerobeeMessage) -> None:
        seen.append(text)
        if text == "bad":
            await message.reject("by hand")
        elif seen.count(text) == 1:
            await message.nack("not yet", after=0.1)
        await message.ack()  # the first answer counts

    await own.store([b"bad", b"good"])
    async with running(broker):
        assert (await next_letter(own)).reason == "by hand"
        await until(lambda: seen.count("good") == 2)
        await until_done(own)


async def test_one_key_is_in_order_beside_others(own: OwnTopic) -> None:
    broker = broker_of(own)
    seen: list[str] = []

    @broker.subscriber(own.topic, **reading(own, order_by="key"))
    async def handle(text: str) -> None:
        seen.append(text)
        if text == "a0" and seen.count("a0") == 1:
            raise RetryLater(after=0.3)

    async with broker:
        for number in range(3):
            for key in "ab":
                await broker.publish(f"{key}{number}", own.topic, sharding_key=key)
        await broker.start()
        await until(lambda: len(seen) == 7)
    assert [each for each in seen if each[0] == "a"] == ["a0", "a0", "a1", "a2"]
    assert [each for each in seen if each[0] == "b"] == ["b0", "b1", "b2"]


async def test_filters_tags_and_delays_are_those_of_messages(own: OwnTopic) -> None:
    broker = broker_of(own)
    seen: list[tuple[str, float]] = []
    loop = asyncio.get_running_loop()

    @broker.subscriber(own.topic, **reading(own, expression=sql("price > 5")))
    async def handle(text: str, message: AerobeeMessage) -> None:
        assert message.raw_message.message.tag == "new"
        seen.append((text, loop.time()))

    async with running(broker):
        began = loop.time()
        for price in (5, 6):
            await broker.publish(
                f"{price}", own.topic, tag="new", headers={"price": f"{price}"}, delay=0.5
            )
        await until(lambda: seen)
        await until_done(own)
    assert [text for text, _ in seen] == ["6"]
    assert seen[0][1] - began >= 0.5


async def test_a_result_goes_where_its_message_asks(own: OwnTopic) -> None:
    broker = broker_of(own)

    @broker.subscriber(own.topic, **reading(own))
    async def handle(text: str) -> AerobeeResponse:
        return AerobeeResponse(text.upper(), tag="answer", keys=["k"])

    async with running(broker):
        await broker.publish("hello", own.topic, reply_to=f"{own.topic}-answers")
        await until_done(own)
        consumer = SimpleConsumer(own.group_name, nameservers=own.nameservers)
        async with consumer.subscribe(f"{own.topic}-answers"):
            (answer,) = await consumer.receive(1, timeout=PATIENCE_S)
            await consumer.ack(answer)
    assert (answer.body, answer.tag, answer.keys) == (b"HELLO", "answer", ("k",))
    with pytest.raises(FeatureNotSupportedException):
        await broker.request("hello", own.topic)


async def test_without_handlers_messages_are_taken_one_by_one(own: OwnTopic) -> None:
    broker = broker_of(own)
    subscriber = broker.subscriber(own.topic, group=own.group_name)
    await own.store([b"1", b"2", b"3"])
    async with running(broker):
        first = await subscriber.get_one()
        assert first is not None
        await first.nack()
        found: list[object] = []
        async for message in subscriber:
            found.append(await message.decode())
            await message.ack()
            if len(found) == 3:
                break
        await until_done(own)
    assert sorted(found, key=str) == [1, 2, 3]


async def test_a_handler_can_end_its_subscriber(own: OwnTopic) -> None:
    broker = broker_of(own)
    seen: list[str] = []

    @broker.subscriber(own.topic, **reading(own, max_workers=1))
    async def handle(text: str) -> None:
        seen.append(text)
        raise StopConsume

    await own.store([b"a"])
    async with running(broker):
        await until(lambda: seen)
        async with AdminClient(own.nameservers) as admin:

            async def has_no_member() -> bool:
                return not (await admin.groups.describe(own.group_name)).members

            await until(has_no_member)


async def test_routers_and_documents(own: OwnTopic) -> None:
    router = AerobeeRouter(prefix=f"{own.topic}-")
    seen: list[Order] = []

    @router.subscriber("orders", **reading(own))
    @router.publisher("bills")
    async def bill(order: Order) -> str:
        seen.append(order)
        return "billed"

    broker = broker_of(own)
    broker.include_router(router)
    async with broker:
        await broker.publish(Order(id=1), f"{own.topic}-orders")
        await broker.start()
        await until(lambda: seen)
    document = AsyncAPI(broker, title="Shop").to_specification().to_jsonable()
    assert {each["address"] for each in document["channels"].values()} == {
        f"{own.topic}-orders",
        f"{own.topic}-bills",
    }
    assert document["servers"]["development"]["protocol"] == "aerobee"


async def test_an_application_runs_and_stops(own: OwnTopic) -> None:
    broker = broker_of(own)
    seen: list[str] = []
    app = FastStream(broker)

    @broker.subscriber(own.topic, **reading(own))
    async def handle(text: str) -> None:
        seen.append(text)
        app.exit()

    await own.store([b"a"])
    async with asyncio.timeout(PATIENCE_S):
        await app.run()
    assert seen == ["a"]


async def test_a_missing_topic_is_told_at_the_start(own: OwnTopic) -> None:
    broker = broker_of(own)

    @broker.subscriber("no-such-topic", group=own.group_name)
    async def handle(text: str) -> None: ...

    with pytest.raises(TopicNotFound):
        await broker.start()
    await broker.stop()
    with pytest.raises(IllegalName):
        broker.subscriber("orders", group="a b")


# ------------------------------------------------------------------------------ in memory


async def test_an_application_is_tested_in_memory() -> None:
    broker = AerobeeBroker()
    publisher = broker.publisher("bills")

    @broker.subscriber("orders", group="billing")
    @publisher
    async def bill(order: Order) -> str:
        if order.plugs == 0:
            raise ValueError("no plugs")
        return f"order {order.id}"

    @broker.subscriber("orders", group="shipping")
    async def ship(order: Order, message: AerobeeMessage) -> None:
        assert message.raw_message.message.keys == ("order-7",)

    async with TestAerobeeBroker(broker) as testing:
        await testing.publish(Order(id=7), "orders", keys=["order-7"])
        bill.mock.assert_called_once_with({"id": 7, "plugs": 1})
        ship.mock.assert_called_once_with({"id": 7, "plugs": 1})
        publisher.mock.assert_called_once_with("order 7")
        with pytest.raises(ValueError, match="no plugs"):
            await testing.publish(Order(id=8, plugs=0), "orders", keys=["order-7"])


async def test_in_a_test_answers_and_refused_bodies_come_out_of_publish() -> None:
    broker = AerobeeBroker()

    @broker.subscriber("numbers", group="g")
    async def handle(number: int) -> None:
        if number == 1:
            raise Reject("no customer 1")
        if number == 2:
            raise RetryLater("closed", after=60)

    async with TestAerobeeBroker(broker) as testing:
        await testing.publish(0, "numbers")
        with pytest.raises(Reject, match="no customer 1"):
            await testing.publish(1, "numbers")
        with pytest.raises(RetryLater, match="closed"):
            await testing.publish(2, "numbers")
        with pytest.raises(ValidationError):
            await testing.publish({"a": 1}, "numbers")


async def test_what_cannot_be_a_message_is_refused() -> None:
    broker = AerobeeBroker()
    async with TestAerobeeBroker(broker) as testing:
        with pytest.raises(MessageIllegal):
            await testing.publish(b"", "orders")
        await testing.publish(None, "orders")
    subscriber = broker.subscriber("orders", group="g")

    @subscriber
    async def handle(text: str) -> None: ...

    with pytest.raises(SetupError):
        await subscriber.get_one()
