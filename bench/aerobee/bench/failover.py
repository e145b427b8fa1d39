"""How long no master acknowledges: after `kill -9` of a master, and during a planned hand-over.

A few senders send numbered messages one after another throughout, and others send delayed messages,
which are not used to measure pauses. At the end, what was acknowledged is compared with what is
stored: a short pause is worthless if messages are lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aerobee.bench import suite
from aerobee.bench.cluster import BenchCluster, running_cluster
from aerobee.bench.measure import Latencies
from aerobee.bench.replication_cluster import in_sync, master_of
from aerobee.bench.report import Report, Row
from aerobee.client_core import BrokerAdmin, ClusterConnection, Message
from aerobee.consumer_client import PullConsumer, StartFrom
from aerobee.producer_client import Producer, ProducerConfig
from aerobee.runtime.errors import AerobeeError, NotMaster

FLAGS = ("--replicas", "2", "--replication", "sync")
BROKER = "broker-a"
TOPIC = "failover"
SENDERS = 8
SENDERS_OF_LATER = 2
DELAYS_MS = (200, 2_000)
SEND_INTERVAL_S = 0.005
SEND_TIMEOUT_MS = 60_000
STEADY_S = 1.0
RESUME_TIMEOUT_S = 60.0
READ_IDLE_S = 3.0
HAND_OVERS_PER_CLUSTER = 10
DEATHS_MAX = 5
"""Limit for one process: `aerobee up` gives up on one that dies more often, each time within half a
minute of its start."""


async def run_failover(report: Report, load: suite.Load, say: suite.Say) -> None:
    """`load.rounds` kills, and as many hand-overs, each with messages in flight."""
    killed: list[float] = []
    handed_over: list[float] = []
    said_s: list[float] = []
    lost = repeated = errors = sent = later = early = 0
    while len(killed) < load.rounds:
        async with running_cluster(flags=FLAGS) as cluster:
            async with sending(cluster) as senders:
                while len(handed_over) < min(load.rounds, len(killed) + HAND_OVERS_PER_CLUSTER):
                    say(f"hand-over {len(handed_over) + 1} of {load.rounds}")
                    await _settled(cluster)
                    before_s = time.perf_counter() - STEADY_S
                    said_s.append(await _hand_over(cluster))
                    await asyncio.sleep(STEADY_S)
                    handed_over.append(senders.longest_gap_s(before_s))
                deaths: Counter[int] = Counter()
                while len(killed) < load.rounds and max(deaths.values(), default=0) < DEATHS_MAX:
                    say(f"kill {len(killed) + 1} of {load.rounds}")
                    await _settled(cluster)
                    master_id, _ = await master_of(cluster)
                    deaths[master_id] += 1
                    killed.append(await _kill(cluster, master_id, senders))
            say("reading what is stored")
            stored, came_early = await _stored(cluster, senders)
        lost += len(senders.acknowledged - stored.keys())
        repeated += sum(count - 1 for count in stored.values())
        errors += senders.errors
        sent += len(senders.acknowledged)
        later += len(senders.acknowledged & senders.due_ms.keys())
        early += came_early
    report.add(_row("kill -9 of the master until a send is acknowledged again", killed))
    report.add(_row("hand-over, the broker's pause", said_s))
    report.add(_row("hand-over, longest time without an acknowledgement", handed_over))
    report.add(
        Row(
            "through all of it",
            note=f"{sent:,} acknowledged, {later:,} of them to arrive later, {lost} lost, "
            f"{repeated} stored twice, {early} early, {errors} failed",
        )
    )


def _row(name: str, spans_s: list[float]) -> Row:
    ordered = sorted(spans_s)
    p95_s = ordered[max(0, -(-len(ordered) * 95 // 100) - 1)]
    note = (
        f"{len(ordered)} rounds: p50 {ordered[(len(ordered) - 1) // 2] * 1e3:,.0f} ms, "
        f"p95 {p95_s * 1e3:,.0f} ms, max {ordered[-1] * 1e3:,.0f} ms"
    )
    return Row(name, latencies=Latencies.of(ordered), note=note)


@dataclass(slots=True)
class Senders:
    """What the senders were acknowledged."""

    acknowledged: set[int] = field(default_factory=set)
    moments: list[float] = field(default_factory=list)
    """The time of each acknowledgement, and when its send began."""
    begun: list[float] = field(default_factory=list)
    due_ms: dict[int, int] = field(default_factory=dict)
    """The due time of each delayed message, by number, in Unix milliseconds."""
    errors: int = 0
    number: int = 0

    async def send_on(self, producer: Producer) -> None:
        """Until cancelled."""
        while True:
            self.number = number = self.number + 1
            begun_s = time.perf_counter()
            try:
                await producer.send(Message(TOPIC, b"%d" % number))
            except AerobeeError:
                self.errors += 1
            else:
                self.acknowledged.add(number)
                self.moments.append(time.perf_counter())
                self.begun.append(begun_s)
            await asyncio.sleep(SEND_INTERVAL_S)

    async def send_later_on(self, producer: Producer, chance: random.Random) -> None:
        """Until cancelled."""
        while True:
            self.number = number = self.number + 1
            due_ms = time.time_ns() // 1_000_000 + chance.randint(*DELAYS_MS)
            self.due_ms[number] = due_ms
            try:
                await producer.send(Message(TOPIC, b"%d" % number, deliver_at=due_ms))
            except AerobeeError:
                self.errors += 1
            else:
                self.acknowledged.add(number)
            await asyncio.sleep(SEND_INTERVAL_S)

    async def resumed_s(self, since_s: float) -> float:
        """When the first send begun after `since_s` was acknowledged. Raises TimeoutError."""
        seen = len(self.moments)
        async with asyncio.timeout(RESUME_TIMEOUT_S):
            while True:
                for index in range(seen, len(self.moments)):
                    if self.begun[index] > since_s:
                        return self.moments[index]
                seen = len(self.moments)
                await asyncio.sleep(SEND_INTERVAL_S)

    def longest_gap_s(self, since_s: float) -> float:
        """The longest time between two acknowledgements. Raises RuntimeError: there were none."""
        near = [moment for moment in self.moments if moment >= since_s]
        if len(near) < 2:
            raise RuntimeError("nothing was acknowledged around the hand-over")
        return max(later - earlier for earlier, later in itertools.pairwise(near))


@contextlib.asynccontextmanager
async def sending(cluster: BenchCluster) -> AsyncIterator[Senders]:
    """Tasks that send while the context is open; what is in flight at the end is dropped."""
    senders = Senders()
    config = ProducerConfig(send_timeout_ms=SEND_TIMEOUT_MS)
    async with Producer(cluster.nameserver, config=config) as producer:
        tasks = [asyncio.create_task(senders.send_on(producer)) for _ in range(SENDERS)]
        tasks += [
            asyncio.create_task(senders.send_later_on(producer, random.Random(seed)))
            for seed in range(SENDERS_OF_LATER)
        ]
        try:
            yield senders
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _settled(cluster: BenchCluster) -> None:
    await in_sync(cluster)
    await asyncio.sleep(STEADY_S)


async def _hand_over(cluster: BenchCluster) -> float:
    """The pause as the broker measured it, in seconds."""
    async with ClusterConnection(cluster.nameserver) as connection:
        while True:
            try:
                return (await BrokerAdmin(connection).hand_over(BROKER)).paused_ms / 1_000
            except NotMaster:  # on a busy machine the master just lost its lease
                await _settled(cluster)


async def _kill(cluster: BenchCluster, master_id: int, senders: Senders) -> float:
    """Seconds from the signal to the first acknowledgement of a send that began after it."""
    process = cluster.process_of(BROKER, master_id)
    if process is None:
        raise RuntimeError("the master's process is not there")
    killed_s = time.perf_counter()
    os.kill(process, signal.SIGKILL)
    try:
        return await senders.resumed_s(killed_s) - killed_s
    except TimeoutError:
        raise RuntimeError(
            f"nothing was acknowledged after the death of replica {master_id}; the cluster said:\n"
            f"{cluster.ready_file.with_name('up.log').read_text(errors='replace')}"
        ) from None


async def _stored(cluster: BenchCluster, senders: Senders) -> tuple[Counter[int], int]:
    """How often each number is in the topic, and how many arrived before they were due."""
    await asyncio.sleep(DELAYS_MS[1] / 1_000)
    found: Counter[int] = Counter()
    early = 0
    consumer = PullConsumer(
        "failover-check",
        nameservers=cluster.nameserver,
        start_from=StartFrom.FIRST,
        auto_commit=False,
    )
    async with consumer:
        await consumer.assign(await consumer.queues_of(TOPIC))
        while batches := await consumer.poll_batches(timeout=READ_IDLE_S):
            for message in itertools.chain.from_iterable(batches):
                number = int(message.body)
                found[number] += 1
                early += message.store_timestamp_ms < senders.due_ms.get(number, 0)
    return found, early
