"""Delayed messages: how fast they are accepted, and how late they arrive.

A million wait for a distant time while others fall due, 10,000 per second. Lateness is the time
from a message's due time to the call of the listener.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aerobee.bench import suite
from aerobee.bench.cluster import BenchCluster, broker_stats, running_cluster
from aerobee.bench.measure import Latencies, Stopwatch
from aerobee.bench.produce import Produced, produce_batches
from aerobee.bench.report import Report, Row
from aerobee.client_core import Message, ReceivedMessage
from aerobee.consumer_client import PushConsumer, StartFrom
from aerobee.producer_client import Producer, ProducerConfig

BROKER = "broker-a"
PENDING_TOPIC = "delay-pending"
PLAIN_TOPIC = "delay-plain"
DUE_TOPIC = "delay-due"
PENDING_DELAY_S = 24 * 3_600.0
DUE_PER_S = 10_000
DUE_S = 10
"""How many seconds of messages fall due at scale 1."""
LEAD_S = 5.0
"""They are all sent before the first one is due."""
BATCH_MESSAGES = 500
DUE_AT = struct.Struct(">q")
TIMEOUT_S = 120.0


async def run_delay(report: Report, load: suite.Load, say: suite.Say) -> None:
    """Delayed sends beside plain ones, lateness, memory, and a start with all messages waiting."""
    async with running_cluster() as cluster:
        say("plain sends")
        plain = await _batches(cluster, load, PLAIN_TOPIC, None)
        before = plain.broker_resident_bytes
        report.add(Row("send, plain", plain.throughput, plain.latencies))
        say("sends that arrive in a day")
        delayed = await _batches(cluster, load, PENDING_TOPIC, PENDING_DELAY_S)
        report.add(
            Row(
                "send, to arrive in a day",
                delayed.throughput,
                delayed.latencies,
                delayed.throughput.messages_per_s / plain.throughput.messages_per_s,
                "plain sends",
            )
        )
        pending = delayed.throughput.messages
        say(f"{DUE_PER_S} due a second")
        report.add(
            Row(
                f"lateness, {DUE_PER_S:,} due a second, {pending:,} wait",
                latencies=await _lateness(cluster, load),
            )
        )
        after = await broker_stats(cluster.brokers[0])
        report.add(
            Row(
                "resident memory of the broker",
                note=f"{before / 1e6:.0f} MB before, {after.resident_bytes / 1e6:.0f} MB with what "
                "waits",
            )
        )
        say("a start with what waits")
        killed = await _start_again(cluster, signal.SIGKILL)
        stopped = await _start_again(cluster, signal.SIGTERM)
        report.add(
            Row(
                f"until a send is acknowledged again, {pending:,} wait",
                note=f"{killed.whole_s:.2f} s after kill -9, {stopped.whole_s:.2f} s with a stop "
                f"in order, {stopped.end_s:.2f} s of them to stop, which needs "
                f"{(stopped.peak_bytes - stopped.resident_bytes) / 1e6:.0f} MB",
            )
        )


async def _batches(
    cluster: BenchCluster, load: suite.Load, topic: str, delay: float | None
) -> Produced:
    return await produce_batches(
        cluster.nameserver,
        cluster.brokers[0],
        topic=topic,
        body_bytes=load.body_bytes,
        messages=load.batched,
        delay=delay,
    )


async def _lateness(cluster: BenchCluster, load: suite.Load) -> Latencies:
    """Raises RuntimeError: a message came early or twice."""
    count = max(1, round(load.batched / suite.Load().batched * DUE_S)) * DUE_PER_S
    padding = bytes(load.body_bytes - DUE_AT.size)
    late_s: list[float] = []
    names: set[bytes] = set()
    finished = asyncio.Event()

    def on_messages(received: Sequence[ReceivedMessage]) -> None:
        now_ms = time.time() * 1e3
        late_s.extend((now_ms - DUE_AT.unpack_from(each.body)[0]) / 1e3 for each in received)
        names.update(each.message_id.encode() for each in received)
        if len(late_s) >= count:
            finished.set()

    consumer = PushConsumer(
        "bench-delay",
        on_messages,
        run_in_thread=False,
        nameservers=cluster.nameserver,
        start_from=StartFrom.FIRST,
    )
    consumer.subscribe(DUE_TOPIC)
    async with Producer(cluster.nameserver) as producer:
        await producer.send(Message(DUE_TOPIC, DUE_AT.pack(time.time_ns() // 1_000_000) + padding))
        async with consumer:
            while not late_s:
                await asyncio.sleep(0.01)
            late_s.clear()
            names.clear()
            lead_s = LEAD_S + count / (DUE_PER_S * 2)
            begin_ms = time.time_ns() // 1_000_000 + round(lead_s * 1e3)
            for first in range(0, count, BATCH_MESSAGES):
                await producer.send_batch(
                    [
                        _due(begin_ms + number * 1_000 // DUE_PER_S, padding)
                        for number in range(first, first + BATCH_MESSAGES)
                    ]
                )
            if time.time() * 1e3 > begin_ms:
                raise RuntimeError("sending took longer than until the first message was due")
            async with asyncio.timeout(TIMEOUT_S):
                await finished.wait()
            await asyncio.sleep(1.0)  # for possible duplicates
    if len(late_s) != count or len(names) != count:
        raise RuntimeError(f"{len(late_s)} deliveries of {len(names)} messages instead of {count}")
    if min(late_s) < 0:
        raise RuntimeError(f"a message came {-min(late_s):.3f} s early")
    return Latencies.of(late_s)


def _due(due_ms: int, padding: bytes) -> Message:
    return Message(DUE_TOPIC, DUE_AT.pack(due_ms) + padding, deliver_at=due_ms)


@dataclass(frozen=True, slots=True)
class StartedAgain:
    """Times of a broker's stop and next start."""

    end_s: float
    """From the signal until the process was gone."""
    whole_s: float
    """From the signal to the next acknowledged send."""
    resident_bytes: int
    """Before the signal."""
    peak_bytes: int
    """The highest value seen while it stopped."""


def _memory_bytes(pid: int, what: str) -> int:
    """From /proc/PID/status; 0: the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(what)), 0)


async def _start_again(cluster: BenchCluster, way: signal.Signals) -> StartedAgain:
    pid = cluster.process_of(BROKER, 0)
    assert pid is not None, "the broker runs"
    config = ProducerConfig(send_timeout_ms=int(TIMEOUT_S * 1e3))
    async with Producer(cluster.nameserver, config=config) as producer:
        await producer.send(Message(PLAIN_TOPIC, b"before"))
        resident_bytes = peak_bytes = _memory_bytes(pid, "VmRSS:")
        watch = Stopwatch()
        os.kill(pid, way)
        while os.path.exists(f"/proc/{pid}"):
            peak_bytes = max(peak_bytes, _memory_bytes(pid, "VmRSS:"))
            await asyncio.sleep(0.005)
        end_s = watch.elapsed_s()
        await producer.send(Message(PLAIN_TOPIC, b"after"))
        return StartedAgain(end_s, watch.elapsed_s(), resident_bytes, peak_bytes)
