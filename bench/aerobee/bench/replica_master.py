"""A master in a separate process, for the replication benchmarks: a full log, and live appends.

Its role is fixed: there is no etcd and no election, only the stream. It reads commands as JSON
lines and answers with one line each; it ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvloop

from aerobee.bench.measure import Stopwatch
from aerobee.bench.stores import BATCH_MESSAGES, HOST
from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.counters import Counters
from aerobee.broker.edge.replicas.replication_service import (
    SERVICE_NAME,
    ReplicationService,
    add_replication_service,
)
from aerobee.broker.replication.config import StreamLimits
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import LogState
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName, TermPolicy
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.broker.replication.sender import ReplicationSender
from aerobee.broker.replication.table_source import TableSource
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.serving import RpcServer
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.freed_memory import keep_freed_memory
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.flush.flush_thread import FlushThread
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import encode_batch
from aerobee.store.format.tags import TagsCodes

CLUSTER, GROUP, EPOCH = "bench", "broker-a", 1
HISTORY = EpochHistory.of([(EPOCH, 0)])
OWN = ReplicaName(0, "master")


class _Role:
    """Always master; records what the slave acknowledges, and when."""

    def __init__(self, store: MessageStore, segment_bytes: int) -> None:
        self._store = store
        self._segment_bytes = segment_bytes
        self.epoch = EPOCH
        self.replica_set: ReplicaSetView | None = None
        self.term: MasterTerm | None = MasterTerm(
            epoch=EPOCH,
            own=OWN,
            in_sync=(OWN,),
            revision=1,
            log_end=0,
            confirmed_end=0,
            policy=TermPolicy(),
            now_s=0.0,
        )
        self.acknowledged_end = 0
        self.advanced = asyncio.Event()

    def log_state(self) -> LogState:
        store = self._store
        return LogState(
            store.min_offset, store.appended_end, HISTORY, self._segment_bytes, store.confirmed_end
        )

    def is_registered(self, name: ReplicaName, instance: str) -> bool:
        """Always true."""
        return True

    def check_joining(self, name: ReplicaName, instance: str, epoch: int) -> None:
        """Never refuses."""

    def replica_joined(self, name: ReplicaName, end: int) -> None:
        """In sync from the start: no sender needs protection from the catch-up here."""
        assert self.term is not None
        self.term.joined(name, end, end, 0.0)
        self.term.in_sync_changed((OWN, name), self.term.revision + 1)

    def replica_acknowledged(self, name: ReplicaName, end: int) -> None:
        self.acknowledged_end = end
        self.advanced.set()

    def replica_left(self, name: ReplicaName) -> None:
        """Nothing depends on it."""

    def heard_epoch(self, epoch: int) -> None:
        """There is no other replica."""


class _Master:
    def __init__(self, store: MessageStore, flush: FlushThread, role: _Role, body_bytes: int):
        self._store = store
        self._flush = flush
        self._role = role
        self._body = b"x" * body_bytes
        self._tags = TagsCodes()
        self.sender: ReplicationSender | None = None

    def append(self, messages: int) -> int:
        records, sizes = encode_batch(
            topic=b"bench",
            bodies=[self._body] * messages,
            properties=[encode_properties({"UNIQ_KEY": "0" * 32})] * messages,
            born_timestamp_ms=1,
            born_host=HOST,
        )
        batch = check_batch(
            records,
            sizes,
            topic="bench",
            limits=BatchLimits(),
            store_host_ipv6=False,
            tags=self._tags,
        )
        end = self._store.append(batch, queue_id=0).end
        self._store.confirm(end)
        return end

    async def fill(self, total_bytes: int) -> dict[str, Any]:
        """Append as fast as the disk allows."""
        messages = 0
        while self._store.appended_end < total_bytes:
            while self._store.unflushed_bytes > 64 << 20:
                await asyncio.sleep(0.005)
            self.append(BATCH_MESSAGES)
            messages += BATCH_MESSAGES
            self._flush.appended()
            await asyncio.sleep(0)
        return {"end": self._store.appended_end, "messages": messages}

    async def live(self, batches_per_s: int, batches: int, messages: int) -> dict[str, Any]:
        """Append at a steady rate; returns how long each batch took to be acknowledged, in
        seconds."""
        assert self.sender is not None
        watch = Stopwatch()
        waiting: list[tuple[int, float]] = []
        spans: list[float] = []

        async def collect() -> None:
            while len(spans) < batches:
                await self._role.advanced.wait()
                self._role.advanced.clear()
                now_s = watch.elapsed_s()
                while waiting and waiting[0][0] <= self._role.acknowledged_end:
                    spans.append(now_s - waiting.pop(0)[1])

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(collect())
            for number in range(batches):
                await asyncio.sleep(max(0.0, number / batches_per_s - watch.elapsed_s()))
                waiting.append((self.append(messages), watch.elapsed_s()))
                self.sender.on_appended()
                self._flush.appended()
        return {"spans": spans}


async def _serve(root: Path, body_bytes: int) -> None:
    clock, config = SystemClock(), StoreConfig(disk_free_bytes_min=0)
    disk = RealDisk(root)
    store = MessageStore.open(disk, clock, config)
    flush = FlushThread(store, disk, clock, config)
    role = _Role(store, config.segment_bytes)
    master = _Master(store, flush, role, body_bytes)
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(4) as pool:
        reads = ReadPool(
            pool, Counters(), clock, loop_delay=LoopDelay(clock), threads=4, bytes_per_s=0
        )
        tables = TableSource(disk, pool)
        master.sender = ReplicationSender(
            CLUSTER, GROUP, role, store, reads, tables, StreamLimits(), clock
        )
        server = RpcServer(say_error, [SERVICE_NAME])
        add_replication_service(ReplicationService(master.sender), server.server)
        _say({"address": f"127.0.0.1:{await server.start('127.0.0.1:0')}"})
        flushing = asyncio.create_task(flush.run())
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            command = json.loads(line)
            do = master.fill if command.pop("do") == "fill" else master.live
            _say(await do(**command))
        await server.stop(0)
        flushing.cancel()
        await asyncio.wait((flushing,))
    store.close()


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    keep_freed_memory()
    uvloop.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
