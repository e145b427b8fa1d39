"""A whole broker over real gRPC and a real store, without a nameserver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest

from aerobee.access.node import NodeAccess
from aerobee.broker.app import serve_broker
from aerobee.broker.config import BrokerConfig, SessionConfig
from aerobee.broker.features import Feature, Kind
from aerobee.broker.opened import OpenedFolder
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.wiring import FEATURES, Wiring
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.runtime.clock import Clock, SystemClock, system_random
from aerobee.runtime.supervise import Lifecycle
from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.engine.disk import Disk, RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.config_tables import TOPICS_PATH, TopicConfig, TopicTable
from aerobee.store.format.record_encode import encode_batch
from aerobee.store.format.record_layout import HostAddress
from aerobee.v1 import broker_pb2, broker_pb2_grpc
from tests.support.grpcio_client import build_channel

BORN_HOST = HostAddress(b"\x7f\x00\x00\x01", 4242)
MIB = 1024 * 1024
F = TypeVar("F", bound=Feature)


@dataclass
class RunningBroker:
    """A broker that serves, and stubs to talk to it."""

    channel: grpc.aio.Channel
    port: int
    lifecycle: Lifecycle
    task: asyncio.Task[None]
    wiring: Wiring
    """Its parts, for what nothing else tells: `tests/test_tidy.py` counts who asks them."""

    def __post_init__(self) -> None:
        self.send = broker_pb2_grpc.SendServiceStub(self.channel)
        self.pull = broker_pb2_grpc.PullServiceStub(self.channel)
        self.offsets = broker_pb2_grpc.OffsetServiceStub(self.channel)
        self.groups = broker_pb2_grpc.GroupServiceStub(self.channel)
        self.admin = broker_pb2_grpc.AdminServiceStub(self.channel)
        self.transactions = broker_pb2_grpc.TransactionServiceStub(self.channel)

    def feature(self, kind: type[F]) -> F:
        """Its feature of this kind."""
        return next(each for each in self.wiring.features if isinstance(each, kind))

    async def figures(self, kind: type[Feature]) -> dict[str, dict[tuple[str, ...], Any]]:
        """What a feature says of itself: the values of each family by their labels."""
        families = await self.feature(kind).figures()
        return {family.name: dict(family.rows) for family in families}

    @property
    def config(self) -> BrokerConfig:
        """As it runs, with what depends on the memory."""
        return self.wiring.config

    @property
    def clock(self) -> Clock:
        return self.wiring.clock

    @property
    def opened(self) -> OpenedFolder:
        """What its folder holds."""
        return self.wiring.folder

    @property
    def store(self) -> MessageStore:
        return self.opened.store

    @property
    def writes(self) -> OwnWrites:
        """For records as the broker writes them itself."""
        return self.wiring.writes

    @property
    def access(self) -> NodeAccess:
        """Who may do what, as nameservers would tell it."""
        return self.wiring.access

    @property
    def clients(self) -> ClientTable:
        """The clients of other people's protocols that it knows."""
        return self.wiring.clients

    async def stop(self) -> None:
        """Stop gracefully; raises what the broker raised."""
        self.lifecycle.stop.set()
        await self.task

    async def send_bodies(
        self, topic: str, queue_id: int, *bodies: bytes, tag: str = ""
    ) -> broker_pb2.SendAck:
        """Send one batch over a stream of its own."""
        frame = broker_pb2.SendFrame(batches=[batch_of(topic, queue_id, *bodies, tag=tag)])
        acks = await self.exchange(frame)
        return acks[0]

    async def exchange(self, *frames: broker_pb2.SendFrame) -> list[broker_pb2.SendAck]:
        """Send frames over one stream; the acknowledgements as they came."""
        call = self.send.SendStream()
        for frame in frames:
            await call.write(frame)
        await call.done_writing()
        acks: list[broker_pb2.SendAck] = []
        while (answer := await call.read()) is not grpc.aio.EOF:
            acks.extend(answer.acks)
        return acks


def batch_of(
    topic: str,
    queue_id: int,
    *bodies: bytes,
    tag: str = "",
    sequence: int = 0,
    timeout_ms: int = 0,
    skip_wait: bool = False,
) -> broker_pb2.RecordBatch:
    """A batch as a producer makes it."""
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    records, sizes = encode_batch(
        topic=topic.encode(),
        bodies=bodies,
        properties=[properties] * len(bodies),
        born_timestamp_ms=1_700_000_000_000,
        born_host=BORN_HOST,
    )
    return broker_pb2.RecordBatch(
        sequence=sequence,
        topic=topic,
        queue_id=queue_id,
        records=records,
        record_sizes=sizes,
        timeout_ms=timeout_ms,
        skip_wait=skip_wait,
    )


def write_topics(root: Path, topics: dict[str, TopicConfig]) -> None:
    """topics.json as an earlier run of the broker would have left it."""
    table = TopicTable()
    for config in topics.values():
        table.put(config)
    root.mkdir(parents=True, exist_ok=True)
    replace_atomically(RealDisk(root), TOPICS_PATH, table.snapshot_bytes(1_700_000_000_000))


StartBroker = Callable[..., Awaitable[RunningBroker]]


@asynccontextmanager
async def running_broker(
    root: Path,
    *,
    topics: dict[str, Any] | None = None,
    disk: Disk | None = None,
    features: Sequence[Kind[Wiring]] = (),
    clock: Clock | None = None,
    **changes: Any,
) -> AsyncIterator[RunningBroker]:
    if topics is not None:
        write_topics(root, topics)
    config = replace(
        BrokerConfig(
            broker_name="broker-a",
            listen="127.0.0.1:0",
            nameservers=(),
            store_root=root,
            stop_grace_ms=200,
            # How full the disk of this machine is must not decide what a test sees.
            store=StoreConfig(
                segment_bytes=16 * MIB,
                disk_free_bytes_min=0,
                retention=RetentionConfig(enabled=False),
            ),
            sessions=SessionConfig(timeout_min_ms=200, timeout_default_ms=1_000),
        ),
        **changes,
    )
    wired: list[Wiring] = []

    class Watched(Feature):
        def __init__(self, parts: Wiring, opened: None) -> None:
            wired.append(parts)

    lifecycle = Lifecycle()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve_broker(
            config,
            lifecycle,
            clock=SystemClock() if clock is None else clock,
            chance=system_random(),
            disk=disk,
            on_listening=port.set_result,
            features=(*FEATURES, *features, Watched),
        )
    )
    await asyncio.wait((task, port), return_when=asyncio.FIRST_COMPLETED)
    if not port.done():
        await task
    async with build_channel(f"127.0.0.1:{port.result()}") as channel:
        broker = RunningBroker(channel, port.result(), lifecycle, task, wired[-1])
        try:
            yield broker
        finally:
            lifecycle.stop.set()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()


@pytest.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[StartBroker]:
    """Starts brokers, by default over `tmp_path/store` with topic `t` of 4 queues."""
    async with AsyncExitStack() as stack:

        async def start(**changes: Any) -> RunningBroker:
            root = changes.pop("root", tmp_path / "store")
            if "topics" not in changes and not (root / "config").exists():
                changes["topics"] = {
                    "t": TopicConfig(name="t", read_queue_count=4, write_queue_count=4)
                }
            return await stack.enter_async_context(running_broker(root, **changes))

        yield start


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    """One broker with page-cache acknowledgement."""
    return await start_broker()


@pytest.fixture
def make_batch() -> Callable[..., broker_pb2.RecordBatch]:
    return batch_of


@pytest.fixture
def sync_flush() -> StoreConfig:
    return StoreConfig(segment_bytes=16 * MIB, disk_free_bytes_min=0, flush_mode=FlushMode.SYNC)
