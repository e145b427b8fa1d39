"""A broker group is closed, read to its end and removed, while messages are sent and read."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from aerobee.client_core import BrokerGroups, ClusterConnection, TopicAdmin, errors
from aerobee.consumer_client import (
    ConsumerConfig,
    Ordering,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from aerobee.producer_client import Message, Producer
from tests.support.local_up import Up
from tests.support.waiting import until

pytestmark = pytest.mark.slow

GRACE_MS = 1_000
KEYS = 40


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path, "--brokers", "2", "--broker-set", f"closing_grace_ms={GRACE_MS}")
    try:
        yield running
    finally:
        running.end(signal.SIGTERM)
        running.output.close()


class Load:
    """Numbered messages of KEYS keys, sent until told to stop, and what a group got of them."""

    def __init__(self, nameserver: str) -> None:
        self._nameserver = nameserver
        self.sent: Counter[str] = Counter()
        self.moved: dict[str, set[str]] = defaultdict(set)
        """By key the broker groups that took its messages."""
        self.got: dict[str, list[int]] = defaultdict(list)
        self.stop = asyncio.Event()

    async def send(self) -> None:
        async with Producer(self._nameserver) as producer:
            number = 0
            while not self.stop.is_set():
                key = f"k{number % KEYS}"
                body = f"{key} {self.sent[key]}".encode()
                receipt = await producer.send(Message("orders", body, sharding_key=key))
                self.sent[key] += 1
                self.moved[key].add(receipt.queue.broker_name)
                number += 1
                await asyncio.sleep(0.002)

    async def read(self) -> None:
        def handle(messages: Sequence[ReceivedMessage]) -> None:
            for message in messages:
                key, number = message.body.decode().split()
                self.got[key].append(int(number))

        consumer = PushConsumer(
            "billing",
            handle,
            run_in_thread=False,
            nameservers=self._nameserver,
            start_from=StartFrom.FIRST,
            ordering=Ordering.ORDERLY,
            config=ConsumerConfig(commit_interval_ms=100),
        )
        consumer.subscribe("orders")
        await consumer.run()

    def is_read(self) -> bool:
        return all(set(range(count)) <= set(self.got[key]) for key, count in self.sent.items())


@pytest.mark.thorough
async def test_a_group_is_emptied_and_removed_without_a_lost_message(up: Up) -> None:
    address = (await asyncio.to_thread(up.wait_ready))["nameserver"]
    await asyncio.to_thread(up.run, "topic", "create", "orders", "--queues", "8")
    load = Load(address)
    async with (
        ClusterConnection(address) as connection,
        asyncio.TaskGroup() as tasks,
        Producer(address) as producer,
    ):
        sending = tasks.create_task(load.send())
        reading = tasks.create_task(load.read())
        await until(lambda: load.sent.total() > 300, "messages")
        groups = BrokerGroups(connection)
        # One that comes later, and one in a queue that nobody chose but its sender.
        later = Message("orders", b"later 0", delay=4)
        queue = next(
            each
            for each in (await connection.routes.route("orders")).queues
            if each.broker_name == "broker-b"
        )
        await producer.send(later, queue=queue)
        load.sent["later"] = 1
        await groups.close("broker-b")
        with pytest.raises(errors.InvalidArgument, match="no queue that takes messages"):
            await groups.close("broker-a")

        remaining = await groups.remaining("broker-b")
        assert remaining.delayed == 1
        assert not remaining.is_empty
        remove = ("broker-group", "remove", "broker-b", "--yes")
        said = await asyncio.to_thread(up.run, *remove, expect=range(1, 10))
        assert "something remains at broker-b" in said.stderr

        load.moved.clear()
        await until(lambda: len(load.moved) == KEYS, "each key is sent again")
        assert {name for names in load.moved.values() for name in names} == {"broker-a"}

        async def is_removable() -> bool:
            found = await groups.remaining("broker-b")
            return found.refuses and found.is_empty

        async with asyncio.timeout(60):
            while not await is_removable():
                await asyncio.sleep(0.1)
        with pytest.raises(errors.NotWritable, match="broker group broker-b is closed"):
            await producer.send(Message("orders", b"x"), queue=queue, timeout=1)

        shown = await asyncio.to_thread(up.json, "broker-group", "show", "broker-b")
        assert shown["removable"]
        removed = await asyncio.to_thread(up.json, *remove)
        assert (removed["broker"], removed["state"]) == ("broker-b", "removed")
        (topic,) = await TopicAdmin(connection).list()
        assert dict(topic.queues_by_broker) == {"broker-a": 4}
        sent = load.sent.total()
        await until(lambda: load.sent.total() > sent + 100, "messages")
        load.stop.set()
        await sending
        await until(load.is_read, "everything is read")
        reading.cancel()
    # In order, but for what a key had on both groups when it moved.
    doubled = {key: len(got) - len(set(got)) for key, got in load.got.items()}
    assert not any(doubled.values())
