"""No request of Apache's API costs a broker's other clients more than its limits."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from aerobee.broker.config import GroupsConfig
from aerobee.broker.popping.feature import Popping
from aerobee.rocketmq_api.request_limits import (
    ENTRIES_PER_REQUEST_MAX,
    KEPT_NAMES_MAX,
    MESSAGES_PER_REQUEST_MAX,
    messaging_request_limits,
)
from aerobee.rocketmq_api.rules.handles import ReceiptHandle
from aerobee.rocketmq_api.times import duration
from aerobee.runtime.errors import InvalidArgument
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.costly_requests import methods_of, places
from tests.support.loop_price import watched
from tests.support.refusals import (
    ANSWERED_STEP_S_MAX,
    MEMORY_BYTES_MAX,
    assert_all_refused,
    refusal_of,
)
from tests.support.v2_calls import V2, codes, sent_message
from tests.support.waiting import until

PLACES = places(methods_of(service_pb2.DESCRIPTOR))
GROUP = v2.Resource(name="billing")
POLLS = 1_000
WAITING_CLIENTS = 200
WAITING_BYTES_MAX = 24 << 10
"""Of a client that waits, as Python counts: 20 KiB when this was written. Protobuf, sockets and
timers are not in it."""


@pytest.fixture
def client(broker: RunningBroker) -> V2:
    return V2(broker.channel)


@pytest.mark.thorough
async def test_what_goes_beyond_a_limit_is_refused_and_nobody_waits(
    broker: RunningBroker, client: V2
) -> None:
    await assert_all_refused(broker.channel, messaging_request_limits(), PLACES)
    assert codes((await client.send(sent_message("t"))).entries) == [v2.OK]


async def test_bytes_that_are_no_request_are_the_client_s_mistake(broker: RunningBroker) -> None:
    for place in PLACES:
        error = await refusal_of(broker.channel, place, b"\xff" * 10)
        assert type(error) is InvalidArgument, f"{place}: {error!r}"


def longest_send() -> service_pb2.SendMessageRequest:
    messages = [sent_message("t", b"x" * 1_000, f"ID-{i}") for i in range(MESSAGES_PER_REQUEST_MAX)]
    return service_pb2.SendMessageRequest(messages=messages)


def longest_acknowledgement() -> service_pb2.AckMessageRequest:
    entries = [
        service_pb2.AckMessageEntry(
            message_id=f"ID-{number}",
            receipt_handle=ReceiptHandle("broker-a", "t", "billing", 0, number, 1, 0).encode(),
        )
        for number in range(ENTRIES_PER_REQUEST_MAX)
    ]
    return service_pb2.AckMessageRequest(group=GROUP, topic=v2.Resource(name="t"), entries=entries)


@pytest.mark.parametrize(
    ("name", "make"),
    [("SendMessage", longest_send), ("AckMessage", longest_acknowledgement)],
)
async def test_a_request_at_its_limits_is_answered_in_turns_with_others(
    client: V2, name: str, make: Callable[[], Any]
) -> None:
    request = make()
    async with watched() as price:
        answer = await client.call(name, request)
    assert len(answer.entries) == 1_024
    assert price.longest_step_s < ANSWERED_STEP_S_MAX
    assert price.memory_bytes < MEMORY_BYTES_MAX


async def test_settings_at_their_limits_are_answered_in_turns_with_others(client: V2) -> None:
    wanted = [
        v2.SubscriptionEntry(
            topic=v2.Resource(name=f"t{number}"),
            expression=v2.FilterExpression(type=v2.TAG, expression="a || b"),
        )
        for number in range(KEPT_NAMES_MAX)
    ]
    settings = v2.Settings(
        client_type=v2.PUSH_CONSUMER,
        subscription=v2.Subscription(group=GROUP, subscriptions=wanted),
    )
    stream = client.telemetry()
    async with watched() as price:
        await stream.write(service_pb2.TelemetryCommand(settings=settings))
        answer = await stream.read()
    stream.cancel()
    assert answer.status.code == v2.OK
    assert price.longest_step_s < ANSWERED_STEP_S_MAX
    assert price.memory_bytes < MEMORY_BYTES_MAX


async def test_numbers_without_a_bound_ask_for_no_more_than_others(client: V2) -> None:
    """A batch has 32 messages, a poll waits 20 s, whatever a client asks for."""
    for _ in range(4):  # each fills one queue
        await client.send(*(sent_message("t", b"x", f"ID-{number}") for number in range(200)))
    found = await client.receive("t", "billing", count=2**31 - 1)
    assert (found.code, len(found.messages)) == (v2.OK, 32)
    (message, *_) = found.messages
    answer = await client.change("billing", message, 13 * 3_600)
    assert answer.status.code == v2.ILLEGAL_INVISIBLE_TIME
    queue = v2.MessageQueue(topic=v2.Resource(name="t"), broker=v2.Broker(name="broker-a"))
    pulled = await client.pull(
        queue, batch_size=2**31 - 1, long_polling_timeout=duration(2**31 * 1_000)
    )
    assert len(pulled.messages) == 32


async def test_beyond_the_limit_of_polls_that_wait_others_are_refused_at_once(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(groups=replace(GroupsConfig(), waiting_polls_max=2))
    client, bells = V2(broker.channel), broker.feature(Popping).bells
    polls = [asyncio.create_task(client.receive("t", "billing", wait_s=20)) for _ in range(2)]
    await until(lambda: bells.polls == 2)
    async with asyncio.timeout(2):
        refused = await client.receive("t", "others", wait_s=20)
    assert (refused.code, refused.messages) == (v2.TOO_MANY_REQUESTS, [])
    assert "groups.waiting_polls_max" in refused.words
    polls[0].cancel()
    await until(lambda: bells.polls == 1)
    await client.send(sent_message("t"))
    assert (await polls[1]).ids == ["ID-1"]
    assert bells.polls == 0


async def test_a_thousand_polls_wait_on_one_connection_and_those_given_up_lose_nothing(
    broker: RunningBroker, client: V2
) -> None:
    bells = broker.feature(Popping).bells
    polls = [
        asyncio.create_task(client.receive("t", "billing", count=1, wait_s=20))
        for _ in range(POLLS)
    ]
    await until(lambda: bells.polls == POLLS)
    given_up, kept = polls[::2], polls[1::2]
    for poll in given_up:
        poll.cancel()
    await until(lambda: bells.polls == len(kept))
    names = [f"ID-{number}" for number in range(len(kept))]
    for number in range(0, len(names), 100):
        some = names[number : number + 100]
        await client.send(*(sent_message("t", b"x", name) for name in some))
    found = [each.messages for each in await asyncio.gather(*kept)]
    received = [message.system_properties for messages in found for message in messages]
    assert sorted(each.message_id for each in received) == sorted(names)
    assert {each.delivery_attempt for each in received} == {1}


@pytest.mark.slow
async def test_a_client_that_only_waits_takes_little_memory(broker: RunningBroker) -> None:
    """Its connection with its header table, its stream of settings and its poll; ten thousand of
    them must fit beside a broker."""
    bells = broker.feature(Popping).bells
    gc.collect()
    tracemalloc.start(1)
    address = f"127.0.0.1:{broker.port}"
    program = ("-m", "peers.idle_clients", address, str(WAITING_CLIENTS), "t")
    clients = await asyncio.create_subprocess_exec(
        sys.executable, *program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert clients.stdout is not None
        assert await clients.stdout.readline() == b"%d\n" % WAITING_CLIENTS
        await until(lambda: bells.polls == WAITING_CLIENTS)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        clients.terminate()
        await clients.communicate()
    assert held / WAITING_CLIENTS < WAITING_BYTES_MAX
