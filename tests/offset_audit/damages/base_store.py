"""A store as a real broker leaves it after real clients: what the damages are done to copies of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aerobee.broker.replication.state_file import STATE_PATH, ReplicaState
from aerobee.client_core.message import Message
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client import ConsumerConfig, PushConsumer, ReceivedMessage, StartFrom
from aerobee.producer_client import Producer
from tests.support.real_brokers import BrokerProcess, RouteServer
from tests.support.sparse_copy import copy_folder

BROKER = "base"
TOPICS = {"orders": 4, "payments": 2}
GROUPS = {"billing": ("orders", "payments"), "shipping": ("orders",)}
HALF = 1_200
"""So many messages in each of the two runs, 200 in each queue."""
SEGMENT_BYTES = 128 * 1024
ENTRIES_PER_FILE = 100
INDEX_SLOTS = 499
INDEX_ENTRIES = 1_000
GEOMETRY = {
    "segment_bytes": SEGMENT_BYTES,
    "consume_queue_entries_per_file": ENTRIES_PER_FILE,
    "index_slots_max": INDEX_SLOTS,
    "index_entries_max": INDEX_ENTRIES,
}


@dataclass(frozen=True, slots=True)
class BaseStores:
    """Two folders of one broker: as it was half-way, and at the end; and how to open them."""

    earlier: Path
    final: Path
    topics: Mapping[str, int] = field(default_factory=lambda: TOPICS)
    geometry: Mapping[str, object] = field(default_factory=lambda: GEOMETRY)
    is_ours: bool = True
    """Otherwise of Apache's broker."""


async def build_stores(folder: Path) -> BaseStores:
    """Messages with tags and keys in six queues. At half-way both groups have read everything;
    afterwards only `billing` goes on. Both folders were closed cleanly."""
    earlier, final = folder / "earlier", folder / "final"
    await _use(final, {"billing": HALF, "shipping": HALF})
    copy_folder(final, earlier)
    await _use(final, {"billing": HALF})
    return BaseStores(earlier, final)


async def _use(folder: Path, groups: Mapping[str, int]) -> None:
    """A run of the broker: HALF messages are sent, and groups read that many of those that they
    subscribe to."""
    broker = await BrokerProcess(BROKER, folder, TOPICS, GEOMETRY).start()
    nameserver = await RouteServer([broker]).start()
    try:
        await send(nameserver.address)
        for group, messages in groups.items():
            await consume(nameserver.address, group, messages)
    finally:
        await nameserver.stop()
        await broker.end()


async def send(nameserver: str, count: int = HALF) -> None:
    """Equally many to each of the six queues."""
    queues = [
        MessageQueue(topic, BROKER, q) for topic, count in TOPICS.items() for q in range(count)
    ]
    async with Producer(nameserver) as producer:
        for begin in range(0, count, 240):
            await asyncio.gather(
                *(
                    producer.send(
                        Message(
                            queues[number % len(queues)].topic,
                            f"message {number} ".encode() * 8,
                            tag=f"tag-{number % 5}",
                            keys=(f"key-{number}",),
                        ),
                        queue=queues[number % len(queues)],
                    )
                    for number in range(begin, begin + 240)
                )
            )


async def consume(nameserver: str, group: str, messages: int) -> None:
    """A member that reads its topics to the end, commits and leaves."""
    topics = GROUPS[group]
    wanted = sum(messages * TOPICS[topic] // 6 for topic in topics)
    seen = 0

    def listener(batch: Sequence[ReceivedMessage]) -> None:
        nonlocal seen
        seen += len(batch)

    consumer = PushConsumer(
        group,
        listener,
        nameservers=nameserver,
        consume_batch_max=100,
        start_from=StartFrom.FIRST,
        client_id=f"{group}-1",
        config=ConsumerConfig(commit_interval_ms=100),
    )
    for topic in topics:
        consumer.subscribe(topic)
    task = asyncio.create_task(consumer.run())
    async with asyncio.timeout(60):
        while seen < wanted:
            await asyncio.sleep(0.02)
    consumer.stop()
    await task


def copy_store(base: Path, target: Path, name: str, broker_id: int = 0) -> Path:
    """`base` under another broker's name, so that one audit tells many copies apart."""
    copy_folder(base, target, "lock", "*.bak")
    path = target / STATE_PATH
    state = ReplicaState.decode(path.read_bytes())
    path.write_bytes(replace(state, broker_name=name, broker_id=broker_id).encode())
    return target
