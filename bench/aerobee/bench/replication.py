"""The replication stream alone, between two processes: catch-up, and a slave's live delay."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aerobee.bench import bare_stream, suite
from aerobee.bench.measure import Latencies, Stopwatch, Throughput
from aerobee.bench.replica_master import CLUSTER, EPOCH, GROUP
from aerobee.bench.report import Report, Row
from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.counters import Counters
from aerobee.broker.edge.replicas.replication_client import connect_to_master
from aerobee.broker.replication.config import StreamLimits
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.follower import Follower
from aerobee.broker.replication.joining import LogState
from aerobee.broker.replication.log_copy import SlaveSide
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.broker.replication.table_copies import TableCopies
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import SubscriptionGroupTable, TopicTable
from aerobee.store.flush.flush_thread import FlushThread
from aerobee.store.flush.table_files import TableFiles

POLL_S = 0.005
LIVE_SINGLE_PER_S = 500
LIVE_BATCHES_PER_S = 100
LIVE_BATCH_MESSAGES = 400


async def run_stream(
    report: Report, load: suite.Load, say: suite.Say, *, live_messages_per_s: int
) -> None:
    """A fresh slave copies a log; then it follows small appends, large ones, and
    `live_messages_per_s`."""
    total_bytes = max(16 << 20, load.batched * load.body_bytes)
    async with bare_stream.running_bare_server() as bare:
        say("bare stream")
        ceiling = await bare_stream.download_rate(
            bare, frame_bytes=suite.FRAME_BYTES, total_bytes=total_bytes
        )
    report.add(Row("bare stream, 512 KiB frames down", ceiling))
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-replication-") as name:
        async with running_master(Path(name) / "master", load.body_bytes) as master:
            say("filling the master's log")
            filled = await master.command(do="fill", total_bytes=total_bytes)
            async with copying_slave(Path(name) / "slave", master.address) as slave:
                say("catch-up")
                caught_up = await slave.catch_up(filled["messages"], filled["end"])
                ratio = caught_up.mb_per_s / ceiling.mb_per_s
                report.add(
                    Row(
                        "replication, catch-up of a fresh slave",
                        caught_up,
                        None,
                        ratio,
                        "bytes of the bare stream",
                    )
                )
                for per_s, messages in (
                    (LIVE_SINGLE_PER_S, 1),
                    (LIVE_BATCHES_PER_S, LIVE_BATCH_MESSAGES),
                    (max(1, live_messages_per_s // LIVE_BATCH_MESSAGES), LIVE_BATCH_MESSAGES),
                ):
                    say("live")
                    batches = max(20, load.steady * per_s // 5_000)
                    live = await master.command(
                        do="live", batches_per_s=per_s, batches=batches, messages=messages
                    )
                    report.add(
                        Row(
                            f"replication, append to acknowledged, {per_s}/s of {messages}",
                            latencies=Latencies.of(live["spans"]),
                        )
                    )


class BenchMaster:
    """The other process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.address = ""

    async def command(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        return await self.answer()

    async def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the master of the benchmark has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.asynccontextmanager
async def running_master(root: Path, body_bytes: int) -> AsyncIterator[BenchMaster]:
    root.mkdir()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "aerobee.bench.replica_master",
        str(root),
        str(body_bytes),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=dict(os.environ),
        limit=1 << 26,
    )
    assert process.stdin is not None
    try:
        master = BenchMaster(process)
        master.address = str((await master.answer())["address"])
        yield master
    finally:
        process.stdin.close()
        await process.wait()


class CopyingSlave:
    """A follower over a store, without the rest of a broker."""

    def __init__(self, store: MessageStore, segment_bytes: int) -> None:
        self.store = store
        self._segment_bytes = segment_bytes
        self._history = EpochHistory()
        self._watch = Stopwatch()

    def log_state(self) -> LogState:
        store = self.store
        return LogState(store.min_offset, store.appended_end, self._history, self._segment_bytes)

    async def adopt(self, history: EpochHistory) -> None:
        self._history = history
        self._watch = Stopwatch()

    def on_confirmed(self, confirmed_end: int) -> None:
        end = min(confirmed_end, self.store.appended_end)
        if end > self.store.confirmed_end:
            self.store.confirm(end)

    async def catch_up(self, messages: int, end: int) -> Throughput:
        """Measured from the agreement with the master on."""
        while self.store.appended_end < end:
            await asyncio.sleep(POLL_S)
        return Throughput(messages, end, self._watch.elapsed_s())


@contextlib.asynccontextmanager
async def copying_slave(root: Path, address: str) -> AsyncIterator[CopyingSlave]:
    root.mkdir()
    clock, config, disk = SystemClock(), StoreConfig(disk_free_bytes_min=0), RealDisk(root)
    store = MessageStore.open(disk, clock, config)
    slave = CopyingSlave(store, config.segment_bytes)
    with ThreadPoolExecutor(2) as pool:
        flush = FlushThread(store, disk, clock, config)
        follower = Follower(
            CLUSTER,
            GROUP,
            ReplicaName(1, "slave"),
            "bench",
            connect_to_master,
            store,
            ReadPool(
                pool, Counters(), clock, loop_delay=LoopDelay(clock), threads=2, bytes_per_s=0
            ),
            SlaveSide(
                log_state=slave.log_state,
                adopt_history=slave.adopt,
                on_appended=flush.appended,
                on_confirmed=slave.on_confirmed,
            ),
            TableCopies(
                TopicTable(), SubscriptionGroupTable(), TableFiles(disk, clock, pool), pool
            ),
            StreamLimits(),
            clock,
        )
        flush.on_flushed(follower.on_flushed)
        running = [
            asyncio.create_task(flush.run()),
            asyncio.create_task(follower.follow(address, EPOCH)),
        ]
        try:
            yield slave
        finally:
            for task in reversed(running):
                task.cancel()
                await asyncio.wait((task,))
    store.close()
