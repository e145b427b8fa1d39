"""A broker killed again and again under a producer's hands: no send fails, each message is stored
once, and in order per queue."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aerobee.client_core import ClusterConnection, Offsets
from aerobee.producer_client import Message, MessageQueue, Producer, ProducerConfig, Receipt
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.record import Record
from tests.support.real_brokers import BrokerProcess, RouteServer
from tests.support.stores import log_records
from tests.support.waiting import until

MIB = 1 << 20
OPTIONS = {"checkpoint_interval_ms": 300, "segment_bytes": MIB}
SENDERS = 8


Arguments = Callable[[random.Random], dict[str, Any]]


def at_once(chance: random.Random) -> dict[str, Any]:
    return {}


def some_later(chance: random.Random) -> dict[str, Any]:
    """Arguments of a message."""
    kinds: list[dict[str, Any]] = [{}, {"delay": chance.random() * 3}, {"delay_level": 1}]
    return chance.choice(kinds)


async def send_until(
    stop: asyncio.Event,
    producer: Producer,
    sender: int,
    chance: random.Random,
    arguments: Arguments,
) -> list[tuple[bytes, Receipt]]:
    """Senders below 4 have a queue each, of which they send several batches at the same time."""
    sent: list[tuple[bytes, Receipt]] = []
    number = 0
    while not stop.is_set():
        bodies = []
        for _ in range(chance.randrange(1, 40)):
            filler = b"." * chance.randrange(3_000)
            bodies.append(b"%d-%d-%s" % (sender, number, filler))
            number += 1
        queue = MessageQueue("orders", "a", sender) if sender < 4 else None
        messages = [Message("orders", body, **arguments(chance)) for body in bodies]
        if chance.random() < 0.5:
            receipts = list(await producer.send_batch(messages, queue=queue))
        else:
            receipts = await asyncio.gather(
                *(producer.send(message, queue=queue) for message in messages)
            )
        sent += zip(bodies, receipts, strict=True)
        await asyncio.sleep(chance.random() * 0.01)
    return sent


async def kill_again_and_again(
    broker: BrokerProcess, routes: RouteServer, chance: random.Random, rounds: int
) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0.2 + chance.random() * 0.6)
        await broker.stop()
        await routes.publish()
        await asyncio.sleep(chance.random() * 0.1)
        await broker.start()
        await routes.publish()
    await asyncio.sleep(0.3)


async def until_arrived(connection: ClusterConnection, count: int) -> None:
    """Until `orders` has so many messages."""
    offsets = Offsets(connection)
    queues = [MessageQueue("orders", "a", queue_id) for queue_id in range(6)]

    async def have_arrived() -> bool:
        bounds = await offsets.bounds(queues)
        return sum(each.count for each in bounds.values()) >= count

    await until(have_arrived, f"{count} messages have arrived", timeout_s=60)


async def run(
    folder: Path, seed: int, rounds: int, arguments: Arguments = at_once
) -> list[tuple[bytes, Receipt]]:
    chance = random.Random(seed)
    broker = await BrokerProcess("a", folder, {"orders": 6}, OPTIONS).start()
    routes = await RouteServer([broker]).start()
    config = ProducerConfig(send_timeout_ms=60_000, batch_bytes_max=20_000)
    stop = asyncio.Event()
    try:
        async with (
            Producer(routes.address, config=config) as one,
            Producer(routes.address, config=config) as other,
            asyncio.TaskGroup() as tasks,
        ):
            senders = [
                tasks.create_task(
                    send_until(
                        stop,
                        other if sender >= 4 and sender % 2 else one,
                        sender,
                        random.Random(f"{seed}-{sender}"),
                        arguments,
                    )
                )
                for sender in range(SENDERS)
            ]
            await kill_again_and_again(broker, routes, chance, rounds)
            stop.set()
        count = sum(len(sender.result()) for sender in senders)
        async with ClusterConnection(routes.address) as connection:
            await until_arrived(connection, count)
        await broker.stop()
    finally:
        await routes.stop()
        await broker.stop()
    return [each for sender in senders for each in sender.result()]


def stored_records(folder: Path) -> list[Record]:
    config = StoreConfig(segment_bytes=MIB, disk_free_bytes_min=0)
    store = MessageStore.open(RealDisk(folder), SystemClock(), config, read_only=True)
    try:
        return [record for record in log_records(store) if record.topic == "orders"]
    finally:
        store.close()


@pytest.mark.thorough
@pytest.mark.slow
async def test_messages_that_arrive_later_arrive_once_and_not_early_across_kills(
    tmp_path: Path,
) -> None:
    sent = await run(tmp_path / "a", 1, rounds=6, arguments=some_later)
    records = await asyncio.to_thread(stored_records, tmp_path / "a")
    assert sorted(record.body for record in records) == sorted(body for body, _ in sent)
    keys = {record.body: record.unique_key for record in records}
    assert all(keys[body] == receipt.message_id for body, receipt in sent)
    later = [record for record in records if record.property_value("REAL_TOPIC")]
    assert len(later) > len(records) / 2
    for record in later:
        due = record.property_value("TIMER_DELIVER_MS")
        due_ms = record.born_timestamp_ms + 1_000 if due is None else int(due)
        assert record.store_timestamp_ms >= due_ms


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
async def test_every_message_is_stored_once_and_in_order_across_kills(
    tmp_path: Path, seed: int
) -> None:
    sent = await run(tmp_path / "a", seed, rounds=8)
    records = await asyncio.to_thread(stored_records, tmp_path / "a")
    by_place = {(record.queue_id, record.queue_offset): record for record in records}
    assert len(by_place) == len(records)
    for body, receipt in sent:
        record = by_place[receipt.queue.queue_id, receipt.queue_offset]
        assert record.body == body
        assert record.unique_key == receipt.message_id
    # Nothing twice, and nothing that was not sent.
    assert sorted(record.body for record in records) == sorted(body for body, _ in sent)
    for queue_id in range(4):
        of_its_sender = [
            int(record.body.split(b"-")[1])
            for record in records
            if record.queue_id == queue_id and record.body.startswith(b"%d-" % queue_id)
        ]
        assert of_its_sender == sorted(of_its_sender)
    assert len(sent) > 1_000
