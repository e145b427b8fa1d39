"""Messages whose clients gave them the same id stay apart: in containers, two clients often have
the same process id and address, and then make the same ids."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aerobee.broker.config import TransactionsConfig
from aerobee.broker.delayed.feature import Delays
from aerobee.broker.delayed.finder import Finder
from aerobee.broker.transactions.feature import Transactions
from aerobee.broker.transactions.pending import PendingHalves, TransactionName
from aerobee.rocketmq_api.times import timestamp
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.recall_handle import RecallHandle
from aerobee.store.format.transaction_records import HalfMessage, Outcome
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.transactions import ORDERS, Asked, end, half_message, seen, transactional
from tests.support.v2_calls import V2, codes, sent_message
from tests.support.waiting import until

ID = "0102FC0000000100010B1D603200000000"
LATER = TopicConfig(
    name="later", read_queue_count=1, write_queue_count=1, attributes={"message.type": "DELAY"}
)
SOON = TransactionsConfig(timeout_ms=1, check_interval_ms=100, checks_max=1_000)
TOPICS = {ORDERS: transactional(), "later": LATER}


def client(broker: RunningBroker, name: str = "a") -> V2:
    return V2(broker.channel, {"x-mq-client-id": name})


async def begin(sender: V2, body: bytes = b"order", **system: Any) -> str:
    """Returns its transaction."""
    answer = await sender.send(half_message(ID, body, **system))
    assert codes(answer.entries) == [v2.OK]
    assert answer.entries[0].message_id == ID
    return answer.entries[0].transaction_id


# ------------------------------------------------------------------------------------ transactions


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_each_of_two_messages_with_one_id_ends_as_its_producer_says(
    start_broker: StartBroker, is_restarted: bool
) -> None:
    broker = await start_broker(topics=TOPICS)
    one = await begin(client(broker), b"of pod 1")
    two = await begin(client(broker, "b"), b"of pod 2")
    assert one == ID != two
    if is_restarted:
        await broker.stop()
        broker = await start_broker()
        await until(lambda: broker.feature(Transactions).ends.is_ready)
    # Sent again, because its client got no answer: each is stored already.
    assert await begin(client(broker, "b"), b"of pod 2") == two
    assert await begin(client(broker), b"of pod 1") == one
    assert len(broker.feature(Transactions).pending) == 2
    assert (await end(client(broker), one, v2.ROLLBACK)).message == "OK"
    assert (await end(client(broker, "b"), two, v2.COMMIT)).message == "OK"
    assert await seen(broker) == [b"of pod 2"]
    assert await begin(client(broker, "b"), b"of pod 2") == two, "it has ended"
    words = (await end(client(broker), one, v2.COMMIT)).message
    assert words == "the transaction was rolled back before"
    assert await seen(broker) == [b"of pod 2"]


async def test_whatever_two_messages_with_one_id_differ_in_they_are_two(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(topics=TOPICS)
    found = [
        await begin(client(broker)),
        await begin(client(broker, "another client")),
        await begin(client(broker), b"another body"),
        await begin(client(broker), tag="another"),
        await begin(client(broker), keys=["another"]),
    ]
    noted = half_message(ID, b"order")
    noted.user_properties["note"] = "another"
    found.append((await client(broker).send(noted)).entries[0].transaction_id)
    assert len(set(found)) == 6
    again = half_message(ID, b"order", queue_id=3)
    assert (await client(broker).send(again)).entries[0].transaction_id == ID, "a later attempt"


async def test_producers_are_asked_about_each_of_two_messages_with_one_id(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(topics=TOPICS, transactions=SOON)
    sender = client(broker)
    one, two = await begin(sender, b"of pod 1"), await begin(client(broker, "b"), b"of pod 2")
    asked = await Asked(sender, ORDERS).open()
    bodies = {one: b"of pod 1", two: b"of pod 2"}
    await until(lambda: asked.bodies == bodies)
    assert (await end(sender, two, v2.COMMIT)).message == "OK"
    assert (await end(sender, one, v2.ROLLBACK)).message == "OK"
    assert await seen(broker) == [b"of pod 2"]
    await asked.close()


def half(offset: int, content: str, *, checks: int = 0) -> HalfMessage:
    """As Apache's broker stored it: it names each by the client's id."""
    return HalfMessage(
        offset, 100 * offset, 100, ID, "p", ORDERS, 0, 1, 1, checks, checks > 0, None, content
    )


def test_two_messages_with_one_id_that_apaches_broker_stored_are_two_transactions() -> None:
    pending = PendingHalves()
    pending.read_half(half(0, "one"))
    pending.read_half(half(1, "two"))
    pending.read_half(half(2, "one", checks=1))
    one, two = TransactionName(ORDERS, ID), TransactionName(ORDERS, f"{ID}~two")
    assert {name: pending.offsets(name) for name in pending.names} == {one: [0, 2], two: [1]}
    pending.read_op(0, [0, 2], Outcome.ROLLED_BACK)
    assert [each.offset for each in pending] == [1]
    assert pending.ended(two) is None


# ------------------------------------------------------------------------------------ later


async def recalled(broker: RunningBroker, handle: str) -> int:
    request = service_pb2.RecallMessageRequest(
        topic=v2.Resource(name="later"), recall_handle=handle
    )
    answer = await client(broker).call("RecallMessage", request)
    assert answer.status.code != v2.OK or answer.message_id == ID
    code: int = answer.status.code
    return code


async def waiting(broker: RunningBroker) -> dict[str, int]:
    """Size of the body by handle."""
    page = await broker.feature(Delays).schedule.search("later")
    return {each.handle: each.body_bytes for each in page.messages}


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_each_of_two_delayed_messages_with_one_id_and_time_is_recalled_alone(
    start_broker: StartBroker, is_restarted: bool
) -> None:
    broker = await start_broker(topics=TOPICS)
    due_ms = int(time.time() * 1_000) + 3_600_000
    handles = []
    for name, body in (("a", b"1"), ("b", b"22"), ("c", b"22"), ("a", b"1")):
        message = sent_message("later", body, ID, delivery_timestamp=timestamp(due_ms))
        (entry,) = (await client(broker, name).send(message)).entries
        handles.append(entry.recall_handle)
    one, two, three, again = handles
    assert len({one, two, three}) == 3
    assert again == one, "a client's second attempt"
    if is_restarted:
        await broker.stop()
        broker = await start_broker()
        await until(lambda: broker.feature(Delays).mover.is_ready)
    await until(lambda: waiting(broker))
    assert await waiting(broker) == {one: 1, two: 2, three: 2}
    plain = RecallHandle("later", broker.config.broker_name, due_ms, ID).encode()
    with pytest.raises(InvalidArgument, match="3 different messages"):
        await broker.feature(Delays).schedule.recall(plain)
    assert await recalled(broker, one) == v2.OK
    assert await waiting(broker) == {two: 2, three: 2}
    await recalled(broker, one)  # again: it recalls no other
    assert await waiting(broker) == {two: 2, three: 2}
    assert await recalled(broker, three) == v2.OK
    assert await waiting(broker) == {two: 2}
    assert await recalled(broker, plain) == v2.OK, "it names one message now"


async def test_a_request_of_apaches_recalls_none_of_two_messages_with_one_id(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(topics=TOPICS)
    due_ms = int(time.time() * 1_000) // 1_000 * 1_000 + 3_600_000
    for body in (b"1", b"22"):
        message = sent_message("later", body, ID, delivery_timestamp=timestamp(due_ms))
        assert (await client(broker).send(message)).status.code == v2.OK
    finder: Finder = broker.feature(Delays).finder
    await finder.until_fed()
    properties = {"TIMER_DEL_UNIQKEY": f"later+{ID}", "REAL_TOPIC": "later"}
    request: Any = _Request({**properties, "TIMER_OUT_MS": str(due_ms - 1_000)})
    assert len(await finder.named("later", ID, due_ms)) == 2
    assert await finder.named_by(request) == []


class _Request:
    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties

    def property_value(self, name: str) -> str | None:
        return self._properties.get(name)
