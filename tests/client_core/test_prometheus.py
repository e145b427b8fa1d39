"""Metrics of clients, as Prometheus scrapes them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.client_core.prometheus import PrometheusMetrics
from aerobee.consumer_client import (
    PullConsumer,
    PushConsumer,
    Reject,
    RetryLater,
    SimpleConsumer,
    StartFrom,
)
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
