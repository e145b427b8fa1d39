"""A broker's folder with very many queues, written without the broker, and the broker over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aerobee.broker.app import serve_broker
from aerobee.broker.config import BrokerConfig
from aerobee.runtime.clock import SystemClock, system_random
from aerobee.runtime.metrics.config import MetricsConfig
from aerobee.runtime.supervise import Lifecycle
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    TOPICS_PATH,
    TopicConfig,
    TopicTable,
)
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.record import HostAddress, encode_batch
from aerobee.store.format.tags import TagsCodes
from tests.support.ports import free_port

MIB = 1024 * 1024
BORN_HOST = HostAddress(b"\x7f\x00\x00\x01", 4242)
GROUP = "readers"
MESSAGES = 3
COMMITTED = 1


@dataclass(frozen=True)
class Running:
    port: int
    metrics: str


def topic_name(number: int) -> str:
    return f"topic-{number:05d}"


def write_folder(folder: Path, *, topics: int, queues: int) -> None:
    """Every queue has MESSAGES messages, of which the group has committed COMMITTED."""
    table, offsets = TopicTable(), ConsumerOffsetTable()
    folder.mkdir(parents=True)
    store = MessageStore.open(RealDisk(folder), SystemClock(), _store_config())
    for number in range(topics):
        topic = topic_name(number)
        table.put(TopicConfig(name=topic, read_queue_count=queues, write_queue_count=queues))
        records, sizes = encode_batch(
            topic=topic.encode(),
            bodies=[b"some body"] * MESSAGES,
            properties=[b""] * MESSAGES,
            born_timestamp_ms=1_700_000_000_000,
            born_host=BORN_HOST,
        )
        for queue_id in range(queues):
            batch = check_batch(
                records,
                sizes,
                topic=topic,
                limits=BatchLimits(),
                store_host_ipv6=False,
                tags=TagsCodes(),
            )
            store.append(batch, queue_id=queue_id)
            offsets.commit(GROUP, topic, queue_id, COMMITTED)
        store.confirm(store.appended_end)
    store.close()
    disk = RealDisk(folder)
    replace_atomically(disk, TOPICS_PATH, table.snapshot_bytes(1))
    replace_atomically(disk, CONSUMER_OFFSETS_PATH, offsets.snapshot_bytes(1))


@asynccontextmanager
async def running_broker(folder: Path) -> AsyncIterator[Running]:
    """In this process and loop, alone, with metrics."""
    metrics = f"127.0.0.1:{free_port()}"
    lifecycle = Lifecycle()
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    config = BrokerConfig(
        listen="127.0.0.1:0",
        nameservers=(),
        store_root=folder,
        stop_grace_ms=100,
        store=_store_config(),
        metrics=MetricsConfig(listen=metrics),
    )
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(
            serve_broker(
                config,
                lifecycle,
                clock=SystemClock(),
                chance=system_random(),
                on_listening=listening.set_result,
            )
        )
        await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        try:
            yield Running(listening.result(), metrics)
        finally:
            lifecycle.stop.set()
            await task


def _store_config() -> StoreConfig:
    return StoreConfig(
        disk_free_bytes_min=0,
        segment_bytes=64 * MIB,
        unflushed_bytes_max=1 << 40,
        retention=RetentionConfig(enabled=False),
    )
