"""Metrics of clients, as Prometheus scrapes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.client_core.prometheus import PrometheusMetrics
from aerobee.consumer_client import (
    Batch,
    PullConsumer,
    PushConsumer,
    Reject,
    RetryLater,
    SimpleConsumer,
    StartFrom,
)
from aerobee.consumer_client.typed import TypedTopic
from aerobee.integrations.faststream.testing import received
from aerobee.producer_client import Producer
from aerobee.runtime.errors import MessageTooLarge
from aerobee.testing import VirtualCluster


async def test_what_clients_do_is_counted() -> None:
    registry = CollectorRegistry()

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(f"aerobee_client_{name}", labels) or 0.0

    async with VirtualCluster() as cluster:
        metrics = PrometheusMetrics(registry)
        await cluster.create_topic("orders", queues=1)
        async with Producer(cluster.nameservers, telemetry=metrics) as producer:
            for body in (b"good", b"bad", b"later", b"broken"):
                await producer.send(Message("orders", body))
            with pytest.raises(MessageTooLarge):
                await producer.send(Message("orders", bytes(5 << 20)))
        assert value("sent_messages_total", topic="orders", result="done") == 4
        assert value("sent_messages_total", topic="orders", result="failed") == 1
        assert value("send_seconds_count", topic="orders") == 5

        async def handle(messages: Sequence[ReceivedMessage]) -> RetryLater | None:
            (message,) = messages
            if message.body == b"bad":
                raise Reject("never")
            if message.body == b"broken" and not message.reconsume_times:
                raise ValueError
            is_later = message.body == b"later" and not message.reconsume_times
            return RetryLater(after=5) if is_later else None

        push = PushConsumer(
            "g",
            handle,
            nameservers=cluster.nameservers,
            start_from=StartFrom.FIRST,
            telemetry=metrics,
        ).subscribe("orders")
        metrics.watch("g", push)
        async with push:
            await cluster.advance(minutes=1)
            assert (
                value("cached_messages", group="g", topic="orders", broker="broker-a", queue="0")
                == 0
            )
            assert (
                registry.get_sample_value(
                    "aerobee_client_lag_messages",
                    {"group": "g", "topic": "orders", "broker": "broker-a", "queue": "0"},
                )
                == 0
            )
        for result in ("rejected", "retry", "failed"):
            assert value("handled_messages_total", group="g", topic="orders", result=result) == 1
        assert value("handled_messages_total", group="g", topic="orders", result="done") == 1
        assert value("handled_messages_total", group="g", topic="%RETRY%g", result="done") == 2
        assert value("handle_seconds_count", group="g", topic="orders") == 4
        assert value("sent_back_messages_total", group="g", result="dead_letter") == 1
        assert value("sent_back_messages_total", group="g", result="retry") == 2

        pull = PullConsumer(
            "p",
            nameservers=cluster.nameservers,
            start_from=StartFrom.FIRST,
            auto_commit=False,
            telemetry=metrics,
        ).subscribe("orders")
        async with pull:
            received: list[ReceivedMessage] = []
            while len(received) < 4:
                received += await pull.poll()
            async with pull.processing(received[0]):
                pass
        assert value("received_messages_total", group="p") == 4
        assert value("handled_messages_total", group="p", topic="orders", result="done") == 1

        simple = SimpleConsumer("s", nameservers=cluster.nameservers, telemetry=metrics)
        async with simple.subscribe("orders"):
            messages = await simple.receive()
            await simple.ack(messages)
        assert value("received_messages_total", group="s") == len(messages) > 0


TEXTS = TypedTopic("texts", str)
BODIES = ("fine", "bad", "later", "broken")


async def handle_text(text: str, message: ReceivedMessage) -> None:
    if text == "bad":
        raise Reject("never")
    if text == "later":
        raise RetryLater(after=600)
    if text == "broken":
        raise ValueError(text)


async def handle_plainly(messages: Sequence[ReceivedMessage]) -> None:
    for message in messages:
        await handle_text(message.body.decode(), message)


def handled(registry: CollectorRegistry) -> dict[str, float]:
    [family] = (each for each in registry.collect() if each.name.endswith("_handled_messages"))
    samples = [each for each in family.samples if each.name.endswith("_total")]
    return {each.labels["result"]: each.value for each in samples}


async def send_texts(cluster: VirtualCluster) -> None:
    await cluster.create_topic(TEXTS.name, queues=1)
    async with Producer(cluster.nameservers) as producer:
        for body in BODIES:
            await producer.send(TEXTS.message(body))


@pytest.mark.parametrize("batch_max", [1, 4])
async def test_a_typed_listener_counts_what_became_of_each_message(batch_max: int) -> None:
    registry = CollectorRegistry()
    async with VirtualCluster() as cluster:
        await send_texts(cluster)
        consumer = PushConsumer(
            "g",
            TEXTS.listener(handle_text),
            nameservers=cluster.nameservers,
            start_from=StartFrom.FIRST,
            consume_batch_max=batch_max,
            telemetry=PrometheusMetrics(registry),
        )
        async with consumer.subscribe(TEXTS.name):
            await cluster.advance(seconds=1)
    # In a batch, what comes after "later" comes again with it.
    again = {"retry": 1, "failed": 1} if batch_max == 1 else {"retry": 2}
    assert handled(registry) == {"done": 1, "rejected": 1, **again}


async def test_what_a_typed_listener_did_not_choose_has_failed_in_a_batch_too() -> None:
    registry = CollectorRegistry()
    batch = Batch([received(TEXTS.message(body)) for body in ("fine", "broken", "fine")])
    listener = PrometheusMetrics(registry).listening(TEXTS.listener(handle_text), group="g")
    await cast(Awaitable[None], listener(batch))
    assert handled(registry) == {"done": 1, "failed": 2}


@pytest.mark.parametrize("is_typed", [False, True])
async def test_a_simple_consumer_that_listens_counts_alike(is_typed: bool) -> None:
    registry = CollectorRegistry()
    async with VirtualCluster() as cluster:
        await send_texts(cluster)
        consumer = SimpleConsumer(
            "g", nameservers=cluster.nameservers, telemetry=PrometheusMetrics(registry)
        )
        async with consumer.subscribe(TEXTS.name):
            listener = TEXTS.listener(handle_text) if is_typed else handle_plainly
            listening = asyncio.create_task(consumer.listen(listener))
            await cluster.advance(seconds=3)
            consumer.stop()
            await listening
    assert handled(registry) == {"done": 1, "rejected": 1, "retry": 1, "failed": 1}
