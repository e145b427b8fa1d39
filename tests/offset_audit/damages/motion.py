"""Audits of a healthy cluster that is never at rest: none may find what is not true.

    python -m tests.offset_audit.damages.motion --audits 100 --seed 1

A master and its slave work for a producer, for groups that commit, take by POP and fail, for timers
and for transactions. Meanwhile the master changes or is killed, its slave stops for some seconds,
old segments are removed, and topics and groups come and go. Prints every finding above INFO that
the disturbance does not explain, and how often each disturbance was audited.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import grpc

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message
from aerobee.consumer_client import (
    ConsumerConfig,
    ConsumeResult,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from aerobee.errors import AerobeeError
from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.kept import Kept
from aerobee.offset_audit.run.local_run import LocalRun
from aerobee.offset_audit.run.request import AuditRequest, StorePlace
from aerobee.producer_client import Producer
from tests.faults.clusters import ClusterProcess
from tests.offset_audit.damages.auditing import audit
from tests.offset_audit.damages.busy_cluster import A, BusyCluster, busy_cluster
from tests.support.grpcio_client import build_channel
from tests.support.retention import RESERVED_MS, write_times
from tests.support.v2_calls import V2
from tests.support.waiting import until

SETTINGS: Final = (
    *("--broker-set", "store.segment_bytes=1048576"),
    *("--broker-set", "store.disk_free_bytes_min=0"),
)
STAGES: Final = ("registry", "brokers", "offset journals", "judge")
JOBS, REMINDERS, TRANSFERS = "jobs", "reminders", "transfers"
WORKERS, FLAKY = "workers", "flaky"
PAUSE_S: Final = 0.5
STILL_S: Final = 4.0
"""So long a slave is stopped."""

EXPLAINED: Final = {"kill": "UNREACHABLE", "slow slave": "UNREACHABLE"}
"""What is true of a broker that restarts, and of one that does not run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one audit found that is not so."""

    number: int
    disturbance: str
    stage: str
    untrue: tuple[str, ...]


@dataclass
class Works:
    """What the load does besides sending and committing."""

    nameserver: str
    master: Callable[[], Awaitable[str]]
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def start(self) -> None:
        each = (self._jobs, self._remind, self._transfer, self._pop)
        self.tasks = [
            *(asyncio.create_task(self._again(one), name=one.__name__) for one in each),
            asyncio.create_task(self._fail(), name="failing"),
        ]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _again(self, step: Callable[[Producer], Coroutine[Any, Any, None]]) -> None:
        async with Producer(self.nameserver) as producer:
            while True:
                # A master that changes refuses, and a call may have an unknown outcome.
                with suppress(AerobeeError, grpc.aio.AioRpcError, TimeoutError):
                    await step(producer)
                    self.done[step.__name__] += 1
                await asyncio.sleep(PAUSE_S)

    async def _jobs(self, producer: Producer) -> None:
        for _ in range(10):
            await producer.send(Message(JOBS, os.urandom(40).hex().encode()))

    async def _remind(self, producer: Producer) -> None:
        await producer.send(Message(REMINDERS, b"soon", delay=2.0))
        await producer.send(Message(REMINDERS, b"level", delay_level=2))
        await producer.recall(await producer.send(Message(REMINDERS, b"never", delay=60.0)))

    async def _transfer(self, producer: Producer) -> None:
        begun = await producer.begin(Message(TRANSFERS, b"kept"))
        await begun.commit()
        begun = await producer.begin(Message(TRANSFERS, b"dropped"))
        await begun.rollback()

    async def _pop(self, _producer: Producer) -> None:
        """Finishes most, lets some come again, and gives up some."""
        channel = build_channel(await self.master())
        try:
            client = V2(channel)
            found = await client.receive(JOBS, WORKERS, count=16, invisible_s=3, wait_s=1)
            for number, message in enumerate(found.messages):
                if number % 16 == 7:
                    await client.forward(WORKERS, message)
                elif number % 5:
                    await client.acknowledge(WORKERS, message)
        finally:
            await channel.close()

    async def _fail(self) -> None:
        """Every third message fails once."""
        seen: set[bytes] = set()

        def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            bodies = {one.body for one in messages}
            fails = any(body[0] % 3 == 0 and body not in seen for body in bodies)
            seen.update(bodies)
            return ConsumeResult.RETRY_LATER if fails else ConsumeResult.SUCCESS

        consumer = PushConsumer(
            FLAKY,
            listener,
            nameservers=self.nameserver,
            start_from=StartFrom.FIRST,
            config=ConsumerConfig(commit_interval_ms=500),
        )
        await consumer.subscribe(JOBS).run()


@dataclass
class Motion:
    """The cluster, and what disturbs it."""

    busy: BusyCluster
    process: ClusterProcess
    admin: AdminClient
    works: Works
    made: int = 0

    async def nothing(self) -> None: ...

    async def hand_over(self) -> None:
        await self.admin.brokers.hand_over(A, timeout=30.0)

    async def kill(self) -> None:
        name = f"{A}-{await self.busy.in_sync()}"
        names = [one for one in self.process.pids() if one.startswith(A)]
        name = name if name in names else names[await self.busy.in_sync()]
        killed = self.process.kill(name)
        await self.process.wait_restarted(name, killed)

    async def slow_slave(self) -> None:
        master = await self.busy.in_sync()
        names = sorted(one for one in self.process.pids() if one.startswith(A))
        pid = self.process.pids()[names[1 - master]]
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(STILL_S)
        finally:
            os.kill(pid, signal.SIGCONT)

    async def retention(self) -> None:
        before_ms = int(time.time() * 1_000) - RESERVED_MS - 1_000
        for log in self.process.data.rglob("commitlog"):
            write_times(log.parent, before_ms)
        for name, address in self.process.addresses().items():
            if name.startswith(A):
                await self.admin.brokers.clean(address)

    async def come_and_go(self) -> None:
        """A topic is created, used by a group and deleted, and so is the group."""
        self.made += 1
        name, group = f"passing-{self.made}", f"passers-{self.made}"
        await self.admin.topics.create(name, queues=2)
        async with Producer(self.works.nameserver) as producer:
            for _ in range(20):
                await producer.send(Message(name, b"x"))
        seen: list[ReceivedMessage] = []

        async def listener(messages: Sequence[ReceivedMessage]) -> None:
            seen.extend(messages)

        consumer = PushConsumer(
            group,
            listener,
            nameservers=self.works.nameserver,
            start_from=StartFrom.FIRST,
            config=ConsumerConfig(commit_interval_ms=200),
        ).subscribe(name)
        async with consumer:
            await until(lambda: len(seen) >= 20, "all of it seen")
        await self.admin.topics.delete(name)
        await self.admin.groups.delete(group, force=True)

    def disturbances(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        return {
            "nothing": self.nothing,
            "hand over": self.hand_over,
            "retention": self.retention,
            "come and go": self.come_and_go,
            "slow slave": self.slow_slave,
            "kill": self.kill,
        }

    def requests(self) -> list[AuditRequest]:
        """A snapshot, the logs of the brokers, and their files as they are being written."""
        asked = self.busy.request
        stores = tuple(
            StorePlace(str(log.parent)) for log in sorted(self.process.data.rglob("commitlog"))
        )
        return [asked, replace(asked, is_deep=True), replace(asked, is_deep=True, stores=stores)]


@asynccontextmanager
async def motion(folder: Path) -> AsyncIterator[Motion]:
    """In sync, and everything is at work."""
    async with AsyncExitStack() as stack:
        busy = await stack.enter_async_context(busy_cluster(folder, *SETTINGS))
        admin = await stack.enter_async_context(AdminClient(busy.nameserver))
        for topic in (JOBS, REMINDERS, TRANSFERS):
            await admin.topics.create(topic, queues=2)
        works = Works(busy.nameserver, busy.master_address)
        works.start()
        stack.push_async_callback(works.stop)
        await until(lambda: len(works.done) == 4, "all kinds of work")
        yield Motion(busy, busy.process, admin, works)


async def audits_in_motion(folder: Path, audits: int, seed: int) -> AsyncIterator[Outcome]:
    """Every disturbance as often as any other, at a stage of the audit that the seed decides."""
    loop = asyncio.get_running_loop()
    chance = random.Random(seed)
    kept = Kept()
    async with motion(folder) as moving:
        disturbances = moving.disturbances()
        requests = moving.requests()
        for number in range(audits):
            name = list(disturbances)[number % len(disturbances)]
            stage = chance.choice(STAGES)
            running: list[Any] = []

            def disturb(name: str = name, running: list[Any] = running) -> None:
                running.append(asyncio.run_coroutine_threadsafe(disturbances[name](), loop))
                time.sleep(chance.random())

            request = requests[chance.randrange(len(requests))]
            kept.begin(is_full=False)
            # Every other one knows what those before it have read, as the runs of a watch.
            engine = LocalRun(None, kept if number % 2 else None)
            summary = await asyncio.to_thread(audit, engine, request, {stage: disturb})
            for one in running:
                await asyncio.wrap_future(one)
            yield Outcome(number, name, stage, untrue(summary, name))
            await moving.busy.in_sync()
            await moving.busy.load.goes_on()


def untrue(summary: Summary, disturbance: str) -> tuple[str, ...]:
    """What no disturbance explains, a sentence each."""
    explained = EXPLAINED.get(disturbance)
    return tuple(
        f"{one['severity']} {one['check']}: {one['evidence']}"
        for one in summary.findings
        if one["severity"] != "INFO" and one["check"] != explained
    )


async def run(audits: int, seed: int) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as name:
        async for one in audits_in_motion(Path(name), audits, seed):
            counts[one.disturbance, "untrue" if one.untrue else "true"] += 1
            for told in one.untrue:
                print(f"{one.number}, {one.disturbance} at {one.stage}: {told}", flush=True)
            print(f"{one.number + 1} audits done", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    counts = asyncio.run(run(given.audits, given.seed))
    for (disturbance, result), count in sorted(counts.items()):
        print(f"{disturbance}: {count} {result}")
    return 1 if any(result == "untrue" for _, result in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
