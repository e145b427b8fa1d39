"""A disk that answers EIO, on a write that arrived in part or on a sync, in each kind of file."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from aerobee.broker.app import serve_broker
from aerobee.broker.config import BrokerConfig, SessionConfig
from aerobee.runtime.clock import SystemClock, system_random
from aerobee.runtime.errors import StoreFailed
from aerobee.runtime.supervise import Lifecycle
from aerobee.store.engine.config import FlushMode
from aerobee.store.engine.disk import Disk, RealDisk
from aerobee.v1 import common_pb2
from tests.faults.serving import Client, batch_of, write_topics
from tests.support.fault_disk import FaultDisk
from tests.support.stores import SMALL

STORE = replace(
    SMALL,
    segment_bytes=1 << 16,
    consume_queue_entries_per_file=1_000,
    flush_mode=FlushMode.SYNC,
    checkpoint_interval_ms=50,
)


@dataclass
class Served:
    client: Client
    task: asyncio.Task[None]


@asynccontextmanager
async def served(disk: Disk, root: Path) -> AsyncIterator[Served]:
    """A broker in this process; how it ends is for the test to ask."""
    config = BrokerConfig(
        listen="127.0.0.1:0",
        nameservers=(),
        store_root=root,
        stop_grace_ms=100,
        snapshot_interval_ms=50,
        store=STORE,
        sessions=SessionConfig(timeout_min_ms=200),
    )
    lifecycle = Lifecycle()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve_broker(
            config,
            lifecycle,
            clock=SystemClock(),
            chance=system_random(),
            disk=disk,
            on_listening=port.set_result,
        )
    )
    async with Client(f"127.0.0.1:{await port}") as client:
        try:
            yield Served(client, task)
        finally:
            lifecycle.stop.set()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()


async def send(client: Client, body: bytes) -> int:
    """Its code; STORE_FAILED too if the broker went away before it answered."""
    try:
        (ack,) = await client.exchange(batch_of("t", 0, body, properties=b"KEYS\x01k\x02"))
    except grpc.aio.AioRpcError as failure:
        assert failure.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017
        return common_pb2.STORE_FAILED
    return int(ack.code)


async def commit(client: Client) -> None:
    """A group's first one is on the disk before it is acknowledged."""
    try:
        status = await client.commit("g", "t", 0, 3)
    except grpc.aio.AioRpcError as failure:
        assert failure.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017
    else:
        assert status.code in (common_pb2.OK, common_pb2.STORE_FAILED), status


FILES = {
    "the log": "commitlog/",
    "a consume queue": "consumequeue/",
    "the index": "index/",
    "the list of queue ends": "consumequeue.ends",
    "the checkpoint": "checkpoint",
    "the offsets": "config/consumerOffset",
}


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("name", FILES)
async def test_the_broker_ends_says_why_and_loses_nothing_that_it_acknowledged(
    tmp_path: Path, name: str, operation: str
) -> None:
    root = tmp_path / "store"
    write_topics(root, {"t": 1})
    disk = FaultDisk(root)
    acknowledged = [b"%d" % number * 50 for number in range(20)]
    async with served(disk, root) as broker:
        for body in acknowledged:
            assert await send(broker.client, body) == common_pb2.OK
        await asyncio.sleep(0.2)  # every file is there
        fault = (
            lambda path: path.startswith(FILES[name]),
            OSError(errno.EIO, os.strerror(errno.EIO)),
        )
        if operation == "write":
            disk.write_error = fault
        else:
            disk.datasync_error = fault
        await commit(broker.client)
        code = await send(broker.client, b"after the fault")
        if name == "the log":
            assert code == common_pb2.STORE_FAILED
        if code == common_pb2.OK:
            acknowledged.append(b"after the fault")
        async with asyncio.timeout(10):
            with pytest.raises((StoreFailed, ExceptionGroup)) as failure:
                await broker.task
        assert "Input/output error" in _sentence(failure.value)
    disk.write_error = disk.datasync_error = None
    async with served(RealDisk(root), root) as broker:
        found = await broker.client.bodies("t", 0)
        assert found[: len(acknowledged)] == acknowledged
        assert found[len(acknowledged) :] in ([], [b"after the fault"])
        assert await send(broker.client, b"goes on") == common_pb2.OK


def _sentence(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, StoreFailed), error
    return str(error)
