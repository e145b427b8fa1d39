"""What grows with the size of a cluster: each cost at one size and at ten times that.

Slope = log10(cost of ten times as much / cost): 1 is in proportion, 2 the square, 0 independent of
the size. Costs are processor time of the process in question, so that a busy machine changes
little; of the store's parts, the time taken.

    topics         creating them one by one, at the nameserver and at the broker
    queues         starting a store that has them, and its checkpoint of all of them
    connections    accepting them, and keeping them idle, at the broker
    timers         accepting messages that arrive in a day, at the broker
    in flight      handing out and acknowledging by POP, in any order
    log            starting after a crash that left only the log
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from aerobee.bench import suite
from aerobee.bench.cluster import BenchCluster, running_cluster
from aerobee.bench.many_queues import QUEUES_PER_TOPIC, measure_starts
from aerobee.bench.produce import produce_batches
from aerobee.bench.report import Report, Row
from aerobee.bench.stores import fill_store
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.pop.entries import Begun, PopEntry
from aerobee.broker.pop.journal_state import apply_entries
from aerobee.broker.pop.queue_state import QueueState
from aerobee.broker.pop.requests import Poll, PopLimits, Read
from aerobee.broker.pop.standing import Standing
from aerobee.broker.pop.waits import Unsure
from aerobee.client_core import ClusterConnection, TopicAdmin
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.machine import raise_limit
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore

TIMES: Final = 10
TOPICS: Final = 1_000
QUEUES: Final = 10_000
CONNECTIONS: Final = 1_000
TIMERS: Final = 100_000
IN_FLIGHT: Final = 100_000
POPPED_QUEUES: Final = 100
LOG_BYTES: Final = 1 << 30
IDLE_S: Final = 5.0
AT_ONCE: Final = 16
BROKER: Final = "broker-a"
# HTTP/2's preface and an empty SETTINGS frame.
GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Growth:
    """One cost, in seconds, of `size` things and of `TIMES` as many."""

    name: str
    size: int
    unit: str
    small_s: float
    large_s: float

    @property
    def slope(self) -> float:
        """
        >>> round(Growth("t", 10, "things", 1.0, 10.0).slope, 2)
        1.0
        """
        return math.log10(max(self.large_s, 1e-9) / max(self.small_s, 1e-9))

    def row(self) -> Row:
        note = (
            f"{self.small_s:.2f} s for {self.size:,} {self.unit}, {self.large_s:.2f} s for "
            f"{self.size * TIMES:,}: slope {self.slope:.2f}"
        )
        return Row(self.name, note=note)


async def run_growth(report: Report, load: suite.Load, say: suite.Say) -> None:
    """All parts, at sizes in proportion to the load."""
    scale = load.batched / suite.Load().batched
    parts: list[Callable[[float], Awaitable[list[Growth]]]] = [
        _topics,
        _queues,
        _connections,
        _timers,
        _in_flight,
        _log,
    ]
    for part in parts:
        say(part.__name__.strip("_").replace("_", " "))
        for growth in await part(scale):
            report.add(growth.row())


def _size(size: int, scale: float) -> int:
    return max(10, round(size * scale))


async def _topics(scale: float) -> list[Growth]:
    size = _size(TOPICS, scale)
    async with running_cluster() as cluster, ClusterConnection(cluster.nameserver) as connection:
        topics = TopicAdmin(connection, timeout_ms=30_000)
        made = 0

        async def create_some(count: int) -> None:
            nonlocal made
            names = iter(range(made, made + count))
            made += count

            async def worker() -> None:
                for number in names:
                    await topics.create(f"growth-{number:06d}", queues=1)

            async with asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(worker())

        meters = {"nameserver": _Meter(_nameserver(cluster)), "broker": _Meter(_broker(cluster))}
        await create_some(size)
        small = {name: meter.used_s() for name, meter in meters.items()}
        await create_some(size * (TIMES - 1))
        return [
            Growth(f"create topics, {name}", size, "topics", small[name], meter.used_s())
            for name, meter in meters.items()
        ]


async def _queues(scale: float) -> list[Growth]:
    topics = _size(QUEUES // QUEUES_PER_TOPIC, scale)
    loop = asyncio.get_running_loop()
    small = await loop.run_in_executor(None, measure_starts, topics)
    large = await loop.run_in_executor(None, measure_starts, topics * TIMES)
    size = topics * QUEUES_PER_TOPIC
    return [
        Growth("start a store", size, "queues", small.clean.open_s, large.clean.open_s),
        Growth(
            "checkpoint of all queues, the loop's share",
            size,
            "queues",
            small.all_new.taken_s + small.all_new.finished_s,
            large.all_new.taken_s + large.all_new.finished_s,
        ),
        Growth(
            "checkpoint of all queues, the thread's share",
            size,
            "queues",
            small.all_new.written_s,
            large.all_new.written_s,
        ),
    ]


async def _connections(scale: float) -> list[Growth]:
    size = _size(CONNECTIONS, scale)
    raise_limit()
    async with running_cluster() as cluster, AsyncExitStack() as closing:
        host, _, port = cluster.brokers[0].rpartition(":")

        async def connect() -> None:
            reader, writer = await asyncio.open_connection(host, int(port))
            closing.callback(writer.close)
            writer.write(GREETING)
            await reader.readexactly(9)

        async def connect_some(count: int) -> None:
            for _ in range(0, count, AT_ONCE):
                await asyncio.gather(*(connect() for _ in range(min(AT_ONCE, count))))

        async def idle_s() -> float:
            meter = _Meter(_broker(cluster))
            await asyncio.sleep(IDLE_S)
            return meter.used_s()

        nothing_s = await idle_s()
        meter = _Meter(_broker(cluster))
        await connect_some(size)
        small_s, small_idle_s = meter.used_s(), await idle_s()
        before_s = meter.used_s()
        await connect_some(size * (TIMES - 1))
        large_s = small_s + meter.used_s() - before_s
        large_idle_s = await idle_s()
        return [
            Growth("accept connections, broker", size, "connections", small_s, large_s),
            Growth(
                f"keep them idle for {IDLE_S:.0f} s, broker",
                size,
                "connections",
                max(small_idle_s - nothing_s, 1 / _TICKS),
                max(large_idle_s - nothing_s, 1 / _TICKS),
            ),
        ]


async def _timers(scale: float) -> list[Growth]:
    size = _size(TIMERS, scale)
    async with running_cluster() as cluster:
        meter = _Meter(_broker(cluster))

        async def send(count: int) -> float:
            await produce_batches(
                cluster.nameserver,
                cluster.brokers[0],
                topic="growth-timers",
                body_bytes=100,
                messages=count,
                delay=24 * 3_600.0,
            )
            return meter.used_s()

        small_s = await send(size)
        large_s = await send(size * (TIMES - 1))
        return [Growth("send, to arrive in a day, broker", size, "timers", small_s, large_s)]


async def _in_flight(scale: float) -> list[Growth]:
    size = _size(IN_FLIGHT // POPPED_QUEUES, scale)
    costs = []
    for count in (size, size * TIMES):
        began_s = time.process_time()
        for _ in range(POPPED_QUEUES):
            _pop(count)
        costs.append(time.process_time() - began_s)
    total = size * POPPED_QUEUES
    return [Growth("hand out and acknowledge, POP", total, "in flight", *costs)]


def _pop(count: int) -> None:
    """All messages of one queue are in flight together, and end in any order."""
    key = GroupQueue("growth", "growth", 0)
    queues: dict[GroupQueue, Standing] = {}
    begun: list[PopEntry] = [Begun(key, 0, 0, 0)]
    apply_entries(queues, begun)
    state = QueueState(
        key,
        queues[key],
        0,
        is_ordered=False,
        held_until_ms=lambda client_id, taken_ms: 0,
        unsure=Unsure(),
        limits=PopLimits(flights_max=count),
    )
    handles: list[tuple[int, int]] = []
    while len(handles) < count:
        poll = Poll("client", 32, 600_000)
        wanted = state.wants(poll, 0)
        end = min(count, wanted.begin + min(32, wanted.room))
        messages = dict.fromkeys(range(wanted.begin, end), 0)
        taken = state.take(poll, Read(messages, (), wanted.begin, end), 0)
        handles += [(each.offset, each.serial) for each in taken.deliveries]
    random.Random(0).shuffle(handles)
    for at in range(0, count, 32):
        state.acknowledge(handles[at : at + 32], 0)
    assert state.committed == count, state


async def _log(scale: float) -> list[Growth]:
    size = max(1 << 24, round(LOG_BYTES * scale))
    loop = asyncio.get_running_loop()
    small_s = await loop.run_in_executor(None, _start_after_crash, size)
    large_s = await loop.run_in_executor(None, _start_after_crash, size * TIMES)
    megabytes = size >> 20
    return [Growth("start with nothing but the log", megabytes, "MiB", small_s, large_s)]


def _start_after_crash(total_bytes: int) -> float:
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-growth-") as name:
        root = Path(name) / "store"
        config = replace(StoreConfig(), disk_free_bytes_min=0, unflushed_bytes_max=1 << 40)
        fill_store(root, config, body_bytes=1_024, total_bytes=total_bytes)
        (root / "checkpoint").unlink()
        for file in (root / "consumequeue").rglob("*"):
            if file.is_file():
                file.unlink()
        (root / "abort").touch()
        began_s = time.process_time()
        store = MessageStore.open(RealDisk(root), SystemClock(), config)
        used_s = time.process_time() - began_s
        store.close()
        return used_s


class _Meter:
    """A process's processor time from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began_s = self._total_s()

    def used_s(self) -> float:
        return self._total_s() - self._began_s

    def _total_s(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


def _broker(cluster: BenchCluster) -> int:
    pid = cluster.process_of(BROKER, 0)
    assert pid is not None, "the broker runs"
    return pid


def _nameserver(cluster: BenchCluster) -> int:
    return cluster.nameserver_process()
