"""Official clients that read a queue by themselves, at one broker, over raw gRPC."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from aerobee.broker.reading.sql_filter import SqlFilter
from aerobee.rocketmq_api.rules.queue_choice import jump_hash
from aerobee.rocketmq_api.times import duration, timestamp
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.record import Record
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.edge.test_rocketmq_api import TOPICS
from tests.support.v2_calls import V2, sent_message


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    return await start_broker(topics=TOPICS)


@pytest.fixture
def client(broker: RunningBroker) -> V2:
    return V2(broker.channel)


GROUP = v2.Resource(name="billing")


def queue_of(topic: str = "t", queue_id: int = 0) -> v2.MessageQueue:
    broker = v2.Broker(name="broker-a")
    return v2.MessageQueue(topic=v2.Resource(name=topic), id=queue_id, broker=broker)


async def sent_to_one_queue(client: V2, *tags: str) -> v2.MessageQueue:
    """Messages with tags, all of one group."""
    for number, tag in enumerate(tags):
        message = sent_message("fifo", tag.encode(), f"ID-{number}", message_group="g", tag=tag)
        assert (await client.send(message)).status.code == v2.OK
    return queue_of("fifo", jump_hash(java_string_hash("g"), 8))


async def test_a_queue_is_read_from_any_offset_on_with_the_wanted_tags(client: V2) -> None:
    queue = await sent_to_one_queue(client, "paid", "late", "paid")
    found = await client.pull(queue)
    assert (found.code, found.next_offset) == (v2.OK, 3)
    assert [each.body for each in found.messages] == [b"paid", b"late", b"paid"]
    first = found.messages[0].system_properties
    assert (first.message_id, first.queue_offset, first.delivery_attempt) == ("ID-0", 0, 1)
    assert not first.HasField("receipt_handle")
    found = await client.pull(queue, offset=1, batch_size=1)
    assert ([each.body for each in found.messages], found.next_offset) == ([b"late"], 2)
    expression = v2.FilterExpression(expression="late")
    found = await client.pull(queue, filter_expression=expression)
    assert ([each.body for each in found.messages], found.next_offset) == ([b"late"], 3)
    found = await client.pull(queue, offset=3)
    assert (found.code, found.messages, found.next_offset) == (v2.MESSAGE_NOT_FOUND, [], 3)


async def test_a_queue_is_read_by_an_sql_expression(client: V2) -> None:
    for number in range(4):
        message = sent_message("fifo", str(number).encode(), f"ID-{number}", message_group="g")
        message.user_properties.update({"a": str(number * 3), "b": "xy"[number % 2]})
        assert (await client.send(message)).status.code == v2.OK
    queue = queue_of("fifo", jump_hash(java_string_hash("g"), 8))
    expression = v2.FilterExpression(type=v2.SQL, expression="a >= 3 AND b IN ('y', 'z')")
    found = await client.pull(queue, filter_expression=expression)
    assert ([each.body for each in found.messages], found.next_offset) == ([b"1", b"3"], 4)
    found = await client.pull(queue, filter_expression=expression, batch_size=1)
    assert ([each.body for each in found.messages], found.next_offset) == ([b"1"], 2)
    waits = duration(20_000)
    waiting = asyncio.create_task(
        client.pull(queue, offset=4, filter_expression=expression, long_polling_timeout=waits)
    )
    for number in (4, 5):
        message = sent_message("fifo", str(number).encode(), f"ID-{number}", message_group="g")
        message.user_properties.update({"a": str(number * 3), "b": "xy"[number % 2]})
        await client.send(message)
    found = await asyncio.wait_for(waiting, 10)
    assert ([each.body for each in found.messages], found.next_offset) == ([b"5"], 6)


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_poll_ends_in_time_where_nothing_matches_and_the_next_goes_on(
    broker: RunningBroker, client: V2, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.send_bodies("t", 0, *[b"no"] * 4_000, tag="no")
    await broker.send_bodies("t", 0, b"yes", tag="yes")
    verdict = SqlFilter.verdict

    def slow(passing: SqlFilter, record: Record) -> tuple[bool, int]:
        time.sleep(0.01)
        return verdict(passing, record)

    with monkeypatch.context() as patch:
        patch.setattr("aerobee.broker.reading.sql_filter.JUDGED_MAX", 10)
        patch.setattr(SqlFilter, "verdict", slow)
        found = await client.receive("t", "billing", sql="TAGS = 'yes'", wait_s=5)
        assert found.code == v2.MESSAGE_NOT_FOUND
    (message,) = (await client.receive("t", "billing", sql="TAGS = 'yes'", wait_s=5)).messages
    assert message.body == b"yes"


async def test_a_pull_waits_for_a_message(client: V2) -> None:
    queue = await sent_to_one_queue(client)
    waiting = asyncio.create_task(client.pull(queue, long_polling_timeout=duration(20_000)))
    await asyncio.sleep(0.2)  # it waits
    assert not waiting.done()
    await sent_to_one_queue(client, "paid")
    found = await asyncio.wait_for(waiting, 10)
    assert [each.body for each in found.messages] == [b"paid"]
    began_s = time.monotonic()
    found = await client.pull(queue, offset=1, long_polling_timeout=duration(300))
    assert found.code == v2.MESSAGE_NOT_FOUND
    assert time.monotonic() - began_s >= 0.3


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"offset": -1}, v2.ILLEGAL_OFFSET),
        ({"offset": 9}, v2.ILLEGAL_OFFSET),
        ({"group": v2.Resource(name="a b")}, v2.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": queue_of("absent")}, v2.TOPIC_NOT_FOUND),
        ({"message_queue": queue_of("t", 77)}, v2.NOT_FOUND),
        ({"message_queue": queue_of("hidden")}, v2.FORBIDDEN),
        ({"message_queue": v2.MessageQueue(topic=v2.Resource(name="t"))}, v2.BAD_REQUEST),
        (
            {"filter_expression": v2.FilterExpression(expression="||")},
            v2.ILLEGAL_FILTER_EXPRESSION,
        ),
        *(
            (
                {"filter_expression": v2.FilterExpression(type=v2.SQL, expression=text)},
                v2.ILLEGAL_FILTER_EXPRESSION,
            )
            for text in ("", "a >", "a LIKE 'x%'")
        ),
    ],
)
async def test_what_cannot_be_pulled_says_why(
    client: V2, changes: dict[str, Any], code: int
) -> None:
    found = await client.pull(**{"message_queue": queue_of(), **changes})
    assert (found.code, found.messages) == (code, [])
    if code == v2.ILLEGAL_OFFSET and changes["offset"] > 0:
        assert found.next_offset == 0


async def test_a_groups_offset_is_what_was_set_last_also_if_that_is_lower(client: V2) -> None:
    queue = await sent_to_one_queue(client, "a", "b", "c")
    asked = service_pb2.GetOffsetRequest(group=GROUP, message_queue=queue)
    assert (await client.call("GetOffset", asked)).status.code == v2.OFFSET_NOT_FOUND
    for offset, code in ((2, v2.OK), (3, v2.OK), (1, v2.OK), (4, v2.ILLEGAL_OFFSET)):
        request = service_pb2.UpdateOffsetRequest(group=GROUP, message_queue=queue, offset=offset)
        assert (await client.call("UpdateOffset", request)).status.code == code
    answer = await client.call("GetOffset", asked)
    assert (answer.status.code, answer.offset) == (v2.OK, 1)


async def test_a_queues_ends_and_times_have_offsets(client: V2) -> None:
    queue = await sent_to_one_queue(client, "a", "b")
    middle_ms = int(time.time() * 1_000) + 1
    await asyncio.sleep(0.01)  # the next is of another millisecond
    await sent_to_one_queue(client, "c")

    async def offset(policy: v2.QueryOffsetPolicy, **when: Any) -> tuple[int, int]:
        request = service_pb2.QueryOffsetRequest(
            message_queue=queue, query_offset_policy=policy, **when
        )
        answer = await client.call("QueryOffset", request)
        return answer.status.code, answer.offset

    assert await offset(v2.BEGINNING) == (v2.OK, 0)
    assert await offset(v2.END) == (v2.OK, 3)
    assert await offset(v2.TIMESTAMP, timestamp=timestamp(middle_ms)) == (v2.OK, 2)
    assert await offset(v2.TIMESTAMP) == (v2.BAD_REQUEST, 0)
    assert await offset(v2.TIMESTAMP, timestamp=Timestamp(seconds=1 << 62)) == (v2.BAD_REQUEST, 0)
