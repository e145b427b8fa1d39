"""A broker's life: starting over what is there, refusing what cannot be, stopping in order."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.supervise import ExitCode
from aerobee.store.engine.tables.config_tables import TOPICS_PATH, TopicConfig, TopicTable
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2
from tests.support.grpcio_client import build_channel

MakeBatch = Callable[..., broker_pb2.RecordBatch]

PROGRAM = """
import sys
from pathlib import Path
from aerobee.broker.app import run_broker
from aerobee.broker.config import BrokerConfig
from aerobee.store.engine.config import StoreConfig
from aerobee.runtime.log import configure_logging
configure_logging()
store = StoreConfig(segment_bytes=1 << 20, disk_free_bytes_min=0)
sys.exit(run_broker(BrokerConfig(
    listen=sys.argv[2], nameservers=(), store_root=Path(sys.argv[1]), store=store)))
"""


async def spawn(root: Path, listen: str = "127.0.0.1:0") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(root), listen, stderr=asyncio.subprocess.PIPE
    )


async def port_of(process: asyncio.subprocess.Process) -> int:
    """From the line that says that it serves."""
    assert process.stderr is not None
    async for line in process.stderr:
        if b"broker serves" in line:
            return int(line.split(b"port=")[1].split()[0])
    raise AssertionError("the broker ended before it served")


@pytest.fixture
async def process_channel() -> AsyncIterator[Callable[[int], grpc.aio.Channel]]:
    channels: list[grpc.aio.Channel] = []

    def connect(port: int) -> grpc.aio.Channel:
        channels.append(build_channel(f"127.0.0.1:{port}"))
        return channels[-1]

    yield connect
    for channel in channels:
        await channel.close()


def prepare(root: Path) -> None:
    table = TopicTable()
    table.put(TopicConfig(name="t", read_queue_count=2, write_queue_count=2))
    path = root / TOPICS_PATH
    path.parent.mkdir(parents=True)
    path.write_bytes(table.snapshot_bytes(1))


async def test_messages_are_there_after_a_restart(start_broker: Any, broker: Any) -> None:
    await broker.send_bodies("t", 0, b"a", b"b")
    await broker.stop()
    broker = await start_broker()
    assert (await broker.send_bodies("t", 0, b"c")).base_queue_offset == 2
    result = await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=0))
    assert result.record_count == 3


async def test_health_says_serving_and_stops_saying_so_before_the_end(broker: Any) -> None:
    health = health_pb2_grpc.HealthStub(broker.channel)
    request = health_pb2.HealthCheckRequest(service="aerobee.v1.SendService")
    assert (await health.Check(request)).status == health_pb2.HealthCheckResponse.SERVING
    watching = health.Watch(health_pb2.HealthCheckRequest())
    assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
    broker.lifecycle.stop.set()
    assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    watching.cancel()
    await broker.task


async def test_a_stop_ends_all_streams_in_time(broker: Any, make_batch: MakeBatch) -> None:
    sending = broker.send.SendStream()
    await sending.write(broker_pb2.SendFrame(batches=[make_batch("t", 0, b"x")]))
    await sending.read()
    waiting = asyncio.ensure_future(
        broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=1, wait_ms=60_000))
    )
    await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        await broker.stop()
    with pytest.raises(grpc.aio.AioRpcError):
        await waiting


async def test_statistics_tell_what_happened(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"a", b"b", b"c")
    await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=0, max_messages=2))
    stats = await broker.admin.GetStats(broker_pb2.GetStatsRequest())
    assert stats.identity.broker_name == "broker-a"
    assert stats.identity.instance
    assert stats.role == common_pb2.MASTER
    assert (stats.messages_in, stats.batches_in, stats.messages_out) == (3, 1, 2)
    assert stats.log_appended_end == stats.log_confirmed_end == stats.log_dispatched_end > 0
    assert (stats.topics, stats.writable, stats.flush_mode) == (1, True, "async")
    assert stats.cpu_seconds > 0
    assert stats.resident_bytes > 1_000_000
    assert stats.version


async def test_a_folder_in_use_is_refused(start_broker: Any, broker: Any) -> None:
    with pytest.raises(InvalidArgument, match="in use by another process"):
        await start_broker()


async def test_a_port_in_use_is_refused_and_the_folder_is_left_in_order(
    start_broker: Any, broker: Any, tmp_path: Path
) -> None:
    with pytest.raises(BaseExceptionGroup) as failure:
        await start_broker(root=tmp_path / "other", listen=f"127.0.0.1:{broker.port}")
    assert failure.group_contains(InvalidArgument, match="the port is in use")
    assert not (tmp_path / "other" / "abort").exists()


@pytest.mark.parametrize(
    "path", ["topics.json", "consumerOffset.json", "subscriptionGroup.json", "queueLeases.json"]
)
async def test_an_unreadable_table_is_refused_with_its_name(
    start_broker: Any, tmp_path: Path, path: str
) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / path).write_text("{ not json")
    with pytest.raises(InvalidArgument, match=path):
        await start_broker()


async def test_the_run_number_rises_with_every_start(start_broker: Any, tmp_path: Path) -> None:
    for run in (1, 2, 3):
        broker = await start_broker()
        record = json.loads((tmp_path / "store" / "config" / "queueLeases.json").read_text())
        assert (record["runNumber"], record["cleanStop"]) == (run, False)
        await broker.stop()
        record = json.loads((tmp_path / "store" / "config" / "queueLeases.json").read_text())
        assert (record["runNumber"], record["cleanStop"]) == (run, True)


# ---------------------------------------------------------------------------- whole processes


@pytest.mark.slow
async def test_sigterm_stops_a_process_cleanly(
    tmp_path: Path, process_channel: Callable[[int], grpc.aio.Channel], make_batch: MakeBatch
) -> None:
    prepare(tmp_path)
    process = await spawn(tmp_path)
    channel = process_channel(await port_of(process))
    call = broker_pb2_grpc.SendServiceStub(channel).SendStream()
    await call.write(broker_pb2.SendFrame(batches=[make_batch("t", 0, b"x")]))
    assert (await call.read()).acks[0].code == common_pb2.OK
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 20) == ExitCode.OK
    assert not (tmp_path / "abort").exists()


@pytest.mark.slow
async def test_after_sigkill_everything_acknowledged_is_there(
    tmp_path: Path, process_channel: Callable[[int], grpc.aio.Channel], make_batch: MakeBatch
) -> None:
    prepare(tmp_path)
    process = await spawn(tmp_path)
    call = broker_pb2_grpc.SendServiceStub(process_channel(await port_of(process))).SendStream()
    for sequence in range(50):
        await call.write(broker_pb2.SendFrame(batches=[make_batch("t", 0, b"%d" % sequence)]))
        assert (await call.read()).acks[0].base_queue_offset == sequence
    process.kill()
    await process.wait()
    process = await spawn(tmp_path)
    pull = broker_pb2_grpc.PullServiceStub(process_channel(await port_of(process)))
    result = await pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=0))
    assert result.record_count == 50
    process.terminate()
    await process.wait()


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_process_that_cannot_start_says_one_sentence_and_exits_with_3(
    tmp_path: Path,
) -> None:
    prepare(tmp_path)
    first = await spawn(tmp_path)
    port = await port_of(first)
    for root, listen, words in (
        (tmp_path, "127.0.0.1:0", b"in use by another process"),
        (tmp_path / "other", f"127.0.0.1:{port}", b"the port is in use"),
        (Path("/proc/nowhere"), "127.0.0.1:0", b"cannot be written"),
    ):
        process = await spawn(root, listen)
        _, errors = await process.communicate()
        assert process.returncode == ExitCode.REFUSED, errors
        sentences = [line for line in errors.splitlines() if line.startswith(b"aerobee broker:")]
        assert len(sentences) == 1, errors
        assert words in sentences[0]
        assert b"Traceback" not in errors
    first.terminate()
    await first.wait()
