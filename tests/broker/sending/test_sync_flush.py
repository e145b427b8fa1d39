"""Synchronous flush: no receipt before the disk has the bytes, and what happens when it is late."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.broker.replication.state_file import STATE_PATH, ReplicaState
from aerobee.runtime.errors import StoreFailed
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import DiskFile, RealDisk
from aerobee.store.engine.log.segment_supply import SPARE_PREFIX
from aerobee.v1 import broker_pb2, common_pb2

MakeBatch = Callable[..., broker_pb2.RecordBatch]


class GatedFile:
    """A real file of the commit log whose syncs wait for a gate, or fail."""

    def __init__(self, file: DiskFile, disk: GatedDisk) -> None:
        self._file = file
        self._disk = disk
        self.read_at = file.read_at
        self.read_into_nowait = file.read_into_nowait
        self.allocate = file.allocate
        self.truncate = file.truncate
        self.next_data = file.next_data
        self.advise = file.advise
        self.touch_pages = file.touch_pages
        self.lock_in_memory = file.lock_in_memory
        self.size = file.size
        self.close = file.close

    def datasync(self) -> None:
        self._disk.syncs_begun += 1
        assert self._disk.gate.wait(20), "the test forgot to open the gate"
        if self._disk.failure is not None:
            raise self._disk.failure
        self._file.datasync()

    def write_at(self, offset: int, buffers: Any) -> None:
        if self._disk.write_failure is not None:
            raise self._disk.write_failure
        self._file.write_at(offset, buffers)


class GatedDisk(RealDisk):
    """A real folder whose commit log syncs only while the gate is open."""

    __slots__ = ("failure", "gate", "syncs_begun", "write_failure")

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.gate.set()
        self.failure: OSError | None = None
        self.write_failure: OSError | None = None
        self.syncs_begun = 0

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        file = super().open_file(path, create=create, read_only=read_only)
        # Segments are made under a name of their own before they get their place in the log.
        is_segment = path.startswith(("commitlog/", SPARE_PREFIX)) and not path.endswith("queue")
        return GatedFile(file, self) if is_segment else file


@pytest.fixture
def disk(tmp_path: Path) -> GatedDisk:
    return GatedDisk(tmp_path / "store")


async def start(start_broker: Any, disk: GatedDisk, store: StoreConfig) -> Any:
    broker = await start_broker(disk=disk, store=store)
    await broker.send_bodies("t", 3, b"the first one makes the segment")
    return broker


async def no_answer(call: Any, seconds: float = 0.15) -> asyncio.Task[Any]:
    """A read that has nothing to return yet."""
    reading: asyncio.Task[Any] = asyncio.ensure_future(call.read())
    await asyncio.wait((reading,), timeout=seconds)
    assert not reading.done()
    return reading


async def test_a_receipt_comes_only_once_the_disk_has_the_bytes(
    start_broker: Any, disk: GatedDisk, sync_flush: StoreConfig, make_batch: MakeBatch
) -> None:
    broker = await start(start_broker, disk, sync_flush)
    disk.gate.clear()
    call = broker.send.SendStream()
    await call.write(broker_pb2.SendFrame(batches=[make_batch("t", 0, b"x", sequence=5)]))
    reading = await no_answer(call)
    # Nor do consumers see it.
    result = await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=0))
    assert result.code == common_pb2.NO_NEW_MESSAGE
    disk.gate.set()
    (ack,) = (await reading).acks
    assert (ack.sequence, ack.code, ack.durability) == (5, common_pb2.OK, broker_pb2.FSYNCED)
    result = await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=0, wait_ms=5_000))
    assert result.record_count == 1
    await call.done_writing()


async def test_frames_are_taken_in_while_others_wait_and_one_sync_acknowledges_all(
    start_broker: Any, disk: GatedDisk, sync_flush: StoreConfig, make_batch: MakeBatch
) -> None:
    broker = await start(start_broker, disk, sync_flush)
    disk.gate.clear()
    call = broker.send.SendStream()
    for sequence in range(100):
        await call.write(
            broker_pb2.SendFrame(batches=[make_batch("t", sequence % 4, b"x", sequence=sequence)])
        )
    before = disk.syncs_begun
    for _ in range(200):
        stats = await broker.admin.GetStats(broker_pb2.GetStatsRequest())
        if stats.messages_in == 101:
            break
        await asyncio.sleep(0.01)
    assert stats.messages_in == 101
    disk.gate.set()
    got: list[int] = []
    while len(got) < 100:
        got += [ack.sequence for ack in (await call.read()).acks]
    assert got == list(range(100))
    assert disk.syncs_begun - before <= 3
    await call.done_writing()


async def test_a_batch_that_asked_not_to_wait_is_acknowledged_at_once(
    start_broker: Any, disk: GatedDisk, sync_flush: StoreConfig, make_batch: MakeBatch
) -> None:
    broker = await start(start_broker, disk, sync_flush)
    disk.gate.clear()
    call = broker.send.SendStream()
    await call.write(
        broker_pb2.SendFrame(
            batches=[
                make_batch("t", 0, b"x", sequence=1),
                make_batch("t", 0, b"y", sequence=2, skip_wait=True),
                make_batch("nowhere", 0, b"z", sequence=3),
            ]
        )
    )
    first = (await call.read()).acks
    assert [(ack.sequence, ack.code) for ack in first] == [
        (2, common_pb2.OK),
        (3, common_pb2.TOPIC_NOT_FOUND),
    ]
    assert first[0].durability == broker_pb2.PAGE_CACHE
    disk.gate.set()
    assert [ack.sequence for ack in (await call.read()).acks] == [1]
    await call.done_writing()


async def test_a_late_disk_gives_flush_disk_timeout_with_the_offsets_of_what_is_stored(
    start_broker: Any, disk: GatedDisk, sync_flush: StoreConfig, make_batch: MakeBatch
) -> None:
    broker = await start(start_broker, disk, sync_flush)
    disk.gate.clear()
    call = broker.send.SendStream()
    await call.write(
        broker_pb2.SendFrame(
            batches=[
                make_batch("t", 0, b"patient", sequence=1, timeout_ms=20_000),
                make_batch("t", 0, b"hasty", sequence=2, timeout_ms=80),
            ]
        )
    )
    (late,) = (await call.read()).acks
    assert (late.sequence, late.code) == (2, common_pb2.FLUSH_DISK_TIMEOUT)
    assert late.base_queue_offset == 1
    assert late.store_timestamp_ms > 0
    assert late.message
    disk.gate.set()
    (ack,) = (await call.read()).acks
    assert (ack.sequence, ack.code) == (1, common_pb2.OK)
    await call.done_writing()
    result = await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=0, wait_ms=5_000))
    assert result.record_count == 2


async def test_a_single_send_waits_for_the_disk_too(
    start_broker: Any, disk: GatedDisk, sync_flush: StoreConfig
) -> None:
    broker = await start(start_broker, disk, sync_flush)
    response = await broker.send.Send(broker_pb2.SendRequest(topic="t", body=b"x"))
    assert response.ack.durability == broker_pb2.FSYNCED
    disk.gate.clear()
    response = await broker.send.Send(broker_pb2.SendRequest(topic="t", body=b"x", timeout_ms=80))
    assert response.ack.code == common_pb2.FLUSH_DISK_TIMEOUT
    disk.gate.set()


async def test_when_too_much_waits_for_the_disk_further_batches_are_refused_with_a_hint(
    start_broker: Any, disk: GatedDisk, make_batch: MakeBatch, sync_flush: StoreConfig
) -> None:
    store = replace(sync_flush, unflushed_bytes_max=64 * 1024)
    broker = await start(start_broker, disk, store)
    disk.gate.clear()
    call = broker.send.SendStream()
    for sequence in range(8):
        await call.write(
            broker_pb2.SendFrame(batches=[make_batch("t", 0, bytes(16_000), sequence=sequence)])
        )
    refused = (await call.read()).acks
    assert {ack.code for ack in refused} == {common_pb2.BUSY}
    assert all(ack.retry_after_ms > 0 for ack in refused)
    disk.gate.set()
    await call.done_writing()
    accepted: list[int] = []
    while (answer := await call.read()) is not grpc.aio.EOF:
        accepted += [ack.sequence for ack in answer.acks if ack.code == common_pb2.OK]
    assert len(accepted) >= 3


async def test_a_stop_flushes_and_acknowledges_what_waits_and_refuses_what_is_new(
    start_broker: Any, disk: GatedDisk, sync_flush: StoreConfig, make_batch: MakeBatch
) -> None:
    broker = await start(start_broker, disk, sync_flush)
    disk.gate.clear()
    call = broker.send.SendStream()
    await call.write(broker_pb2.SendFrame(batches=[make_batch("t", 0, b"x", sequence=1)]))
    reading = await no_answer(call)
    broker.lifecycle.stop.set()
    await asyncio.sleep(0.05)
    await call.write(broker_pb2.SendFrame(batches=[make_batch("t", 0, b"y", sequence=2)]))
    (refused,) = (await reading).acks
    assert (refused.sequence, refused.code) == (2, common_pb2.SHUTTING_DOWN)
    disk.gate.set()
    (ack,) = (await call.read()).acks
    assert (ack.sequence, ack.code) == (1, common_pb2.OK)
    await broker.task
    assert not os.path.exists(os.path.join(disk.root, "abort"))


async def test_a_client_that_vanishes_while_it_waits_for_the_disk_harms_nobody(
    start_broker: Any, disk: GatedDisk, sync_flush: StoreConfig, make_batch: MakeBatch
) -> None:
    broker = await start(start_broker, disk, sync_flush)
    disk.gate.clear()
    call = broker.send.SendStream()
    await call.write(broker_pb2.SendFrame(batches=[make_batch("t", 0, b"x")]))
    await no_answer_then_cancel(call)
    disk.gate.set()
    assert (await broker.send_bodies("t", 0, b"y")).base_queue_offset == 1
    stats = await broker.admin.GetStats(broker_pb2.GetStatsRequest())
    assert stats.send_streams == 0


async def no_answer_then_cancel(call: Any) -> None:
    reading = await no_answer(call)
    call.cancel()
    await asyncio.wait((reading,))
    assert reading.cancelled() or reading.exception() is not None


async def test_a_failed_sync_ends_the_broker_and_acknowledges_nothing(
    start_broker: Any, disk: GatedDisk, sync_flush: StoreConfig, make_batch: MakeBatch
) -> None:
    broker = await start(start_broker, disk, sync_flush)
    disk.failure = OSError(errno.EIO, "Input/output error")
    call = broker.send.SendStream()
    await call.write(broker_pb2.SendFrame(batches=[make_batch("t", 0, b"x")]))
    with pytest.raises(BaseExceptionGroup) as failure:
        await broker.task
    assert failure.group_contains(StoreFailed)
    with pytest.raises(grpc.aio.AioRpcError):
        await call.read()
    assert os.path.exists(os.path.join(disk.root, "abort"))


async def test_after_a_failed_sync_the_folder_says_that_its_log_may_lack_something(
    start_broker: Any, disk: GatedDisk, sync_flush: StoreConfig, make_batch: MakeBatch
) -> None:
    broker = await start(start_broker, disk, sync_flush)
    disk.failure = OSError(errno.EIO, "Input/output error")
    call = broker.send.SendStream()
    await call.write(broker_pb2.SendFrame(batches=[make_batch("t", 0, b"x")]))
    with pytest.raises(BaseExceptionGroup):
        await broker.task
    assert ReplicaState.decode(disk.read_file(STATE_PATH)).has_failed


async def test_a_failed_write_ends_the_broker_and_the_batch_is_refused(
    start_broker: Any, disk: GatedDisk, sync_flush: StoreConfig, make_batch: MakeBatch
) -> None:
    broker = await start(start_broker, disk, sync_flush)
    disk.write_failure = OSError(errno.EIO, "Input/output error")
    call = broker.send.SendStream()
    await call.write(broker_pb2.SendFrame(batches=[make_batch("t", 0, b"x")]))
    with pytest.raises(BaseExceptionGroup) as failure:
        await broker.task
    assert failure.group_contains(StoreFailed)
