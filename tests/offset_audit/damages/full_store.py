"""A store with everything that a broker keeps: messages in five topics, timers, delays,
transactions, failed messages, dead letters, and what POP has handed out; and one of Apache's.

What waits is due in a day, so that a broker that is started on a copy delivers none of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from aerobee.client_core.message import Message
from aerobee.consumer_client import (
    ConsumerConfig,
    ConsumeResult,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from aerobee.producer_client import Producer
from aerobee.v1 import broker_pb2
from aerobee.v1.broker_pb2_grpc import OffsetServiceStub
from tests.golden_stores.conftest import GoldenStore
from tests.offset_audit.damages.base_store import (
    BROKER,
    GEOMETRY,
    GROUPS,
    TOPICS,
    BaseStores,
    consume,
    send,
)
from tests.support.grpcio_client import build_channel
from tests.support.real_brokers import RealBroker, RouteServer
from tests.support.sparse_copy import copy_folder
from tests.support.v2_calls import V2
from tests.support.waiting import until

FULL_TOPICS: Final = {**TOPICS, "jobs": 2, "reminders": 1, "transfers": 2}
WORKERS, FLAKY = "workers", "flaky"
DAY_S: Final = 86_400
SOON_MS: Final = 100
LEVELS_MS: Final = (*(SOON_MS,) * 3, *(DAY_S * 1_000,) * 15)
"""The first failure of a message is forgiven soon, the second one in a day."""
FULL_GEOMETRY: Final = {**GEOMETRY, "delay_levels_ms": LEVELS_MS}
HALF: Final = 480
DUE: Final = 8
"""So many reminders come at once, of each half."""
JOBS: Final = 60
GOLDEN: Final = ("clean-small", "ipv6-v2")
QUICK = ConsumerConfig(session_timeout_ms=2_000, commit_interval_ms=100)


async def build_full_stores(folder: Path) -> BaseStores:
    """As `build_stores`, of all that a broker keeps."""
    earlier, final = folder / "earlier", folder / "final"
    await _run(final, 0, list(GROUPS))
    copy_folder(final, earlier)
    await _run(final, 1, ("billing",))
    return BaseStores(earlier, final, FULL_TOPICS, FULL_GEOMETRY)


def golden_stores(folder: Path, name: str) -> BaseStores:
    """A store that Apache's broker left; nothing of it is older."""
    golden = GoldenStore(name, folder)
    geometry = {
        "segment_bytes": golden.segment_bytes,
        "consume_queue_entries_per_file": int(golden.config["mappedFileSizeConsumeQueue"]) // 20,
        "index_slots_max": int(golden.config["maxHashSlotNum"]),
        "index_entries_max": int(golden.config["maxIndexNum"]),
    }
    topics = {topic: len(queues) for topic, queues in golden.topics.items()}
    return BaseStores(folder / "none", golden.root, topics, geometry, is_ours=False)


async def _run(folder: Path, half: int, groups: Sequence[str]) -> None:
    broker = await RealBroker(
        BROKER,
        folder,
        FULL_TOPICS,
        store_options=FULL_GEOMETRY,  # type: ignore[arg-type]
    ).start()
    nameserver = await RouteServer([broker]).start()
    nameserver.has_retry_topics = True
    channel = build_channel(broker.address)
    try:
        await send(nameserver.address, HALF)
        for group in groups:
            await consume(nameserver.address, group, HALF)
        async with Producer(nameserver.address) as producer:
            await _jobs(producer, half)
            await _remind(producer)
            await _came(OffsetServiceStub(channel), (half + 1) * DUE)
            await _transfer(producer)
        await _work(V2(channel))
        await _fail(nameserver.address, half)
    finally:
        await channel.close()
        await nameserver.stop()
        await broker.stop()


def _jobs_of(half: int) -> range:
    return range(half * JOBS, (half + 1) * JOBS)


async def _jobs(producer: Producer, half: int) -> None:
    for number in _jobs_of(half):
        await producer.send(Message("jobs", f"job {number}".encode(), keys=(f"job-{number}",)))


async def _remind(producer: Producer) -> None:
    """Timers and delays: some that came, some that wait, one that was recalled."""
    for number in range(12):
        body = f"reminder {number}".encode()
        wait_s = DAY_S + 60 * number if number % 3 else SOON_MS / 1_000
        await producer.send(Message("reminders", body, delay=wait_s))
        await producer.send(Message("reminders", body, delay_level=6 if number % 3 else 1))
    await producer.recall(await producer.send(Message("reminders", b"recalled", delay=DAY_S)))


async def _came(offsets: Any, reminders: int) -> None:
    queue = broker_pb2.TopicQueue(topic="reminders", queue_id=0)
    request = broker_pb2.QueryBoundsRequest(queues=[queue])

    async def are_there() -> bool:
        answer = await offsets.QueryBounds(request)
        return bool(answer.bounds[0].max_offset >= reminders)

    await until(are_there, "what was due at once")


async def _transfer(producer: Producer) -> None:
    """Transactions: committed, rolled back, and open."""
    for number in range(9):
        message = Message("transfers", f"transfer {number}".encode(), keys=(f"transfer-{number}",))
        begun = await producer.begin(message, check_after_s=DAY_S)
        if number % 3 == 0:
            await begun.commit()
        elif number % 3 == 1:
            await begun.rollback()


async def _work(client: V2) -> None:
    """POP: of each batch a third is finished, one becomes a dead letter, the rest is held."""
    for _ in range(4):
        found = await client.receive("jobs", WORKERS, count=9, invisible_s=DAY_S / 2, wait_s=1)
        if not found.messages:
            return
        first, *others = found.messages
        assert await client.forward(WORKERS, first) == 20_000
        if done := others[:3]:
            await client.acknowledge(WORKERS, *done)


async def _fail(nameserver: str, half: int) -> None:
    """One message in five fails once and is handled then, one in seven fails twice."""
    fails = {n: 2 if n % 7 == 0 else 1 for n in _jobs_of(half) if n % 7 == 0 or n % 5 == 0}
    seen: Counter[int] = Counter()

    def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        (message,) = messages
        number = int(message.body.split()[1])
        seen[number] += 1
        is_done = seen[number] > fails.get(number, 0)
        return ConsumeResult.SUCCESS if is_done else ConsumeResult.RETRY_LATER

    consumer = PushConsumer(
        FLAKY,
        listener,
        nameservers=nameserver,
        start_from=StartFrom.FIRST,
        client_id=f"{FLAKY}-1",
        config=QUICK,
    )
    consumer.subscribe("jobs")
    async with consumer:
        await until(
            lambda: (
                all(seen[number] for number in _jobs_of(half))
                and all(seen[number] == 2 for number in fails)
            ),
            "all jobs seen, and the failed ones again",
        )
