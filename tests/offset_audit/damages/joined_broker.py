"""Brokers of this process that join a running cluster: with a wrong clock, or small files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc

from aerobee.broker.app import serve_broker
from aerobee.broker.config import BrokerConfig
from aerobee.runtime.clock import Clock, SystemClock, system_random
from aerobee.runtime.supervise import Lifecycle
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.v1 import nameserver_pb2_grpc
from tests.support.heartbeating_replica import HeartbeatingReplica


@dataclass(frozen=True, slots=True)
class ShiftedClock:
    """The machine's clock, and somebody set it wrong."""

    by_ms: int

    def now_ms(self) -> int:
        return SystemClock().now_ms() + self.by_ms

    def monotonic_s(self) -> float:
        return SystemClock().monotonic_s()


@asynccontextmanager
async def joined_broker(
    name: str,
    folder: Path,
    nameservers: tuple[str, ...],
    *,
    broker_id: int = 0,
    clock: Clock | None = None,
    segment_bytes: int = 16 * 1024 * 1024,
) -> AsyncIterator[str]:
    """Serves until the context ends; gives its address. Without nameservers it is master alone."""
    config = BrokerConfig(
        broker_name=name,
        broker_id=broker_id,
        listen="127.0.0.1:0",
        nameservers=nameservers,
        store_root=folder,
        registration_lease_ms=5_000,
        stop_grace_ms=100,
        store=StoreConfig(
            disk_free_bytes_min=0,
            # How full the disk of this machine is must not decide what a test sees.
            retention=RetentionConfig(enabled=False),
            segment_bytes=segment_bytes,
            checkpoint_interval_ms=50,
            flush_interval_ms=20,
        ),
    )
    lifecycle = Lifecycle()
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve_broker(
            config,
            lifecycle,
            clock=clock or SystemClock(),
            chance=system_random(),
            on_listening=listening.set_result,
        ),
        name=f"broker:{name}",
    )
    await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    try:
        yield f"127.0.0.1:{listening.result()}"
    finally:
        lifecycle.stop.set()
        await task


@dataclass(frozen=True, slots=True)
class _Nameserver:
    stub: nameserver_pb2_grpc.NameserverServiceStub


@asynccontextmanager
async def registered_as(
    nameserver: str, name: str, broker_id: int, address: str
) -> AsyncIterator[None]:
    """Heartbeats that say that this replica of the broker group lives at `address`."""
    async with grpc.aio.insecure_channel(nameserver) as channel:
        replica = HeartbeatingReplica(
            "aerobee", broker_id, "an-instance", name, address=address, lease_ms=5_000
        )
        await replica.connect(_Nameserver(nameserver_pb2_grpc.NameserverServiceStub(channel)))
        replica.keep_beating()
        try:
            yield
        finally:
            replica.kill()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
