"""A broker killed at random moments under load: every acknowledged message is read back.

Real processes throughout: etcd, a nameserver and one broker with synchronous flush and small
files, so that segments and queue files roll often. Each round starts the broker, lets many senders
work, kills it with SIGKILL at a random moment and starts it again. What had been acknowledged is
then read from the broker and compared: the right body at the acknowledged queue offset, each once.
Some messages are to arrive later; at the end each of those has come, once and not before its time.

    python -m tests.torture.kill_broker --rounds 200 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from aerobee.cli.local_cluster.child import ChildSpec
from aerobee.cli.local_cluster.plan import ClusterPlan, Replica, broker_name
from aerobee.cli.local_cluster.ports import free_ports
from aerobee.cli.local_cluster.programs import broker_child, etcd_child, nameserver_child
from aerobee.client_core import Message
from aerobee.producer_client import Producer, ProducerConfig
from aerobee.runtime.errors import AerobeeError
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2
from tests.support.grpcio_client import build_channel

TOPIC = "torture"
SENDERS = 24
LATER_SHARE = 0.2
DELAYS_MS = (100, 2_000)
BODY_BYTES_MAX = 6_000
START_TIMEOUT_S = 30.0
COME_TIMEOUT_S = 30.0
SETTINGS = {
    "store-flush-mode": "sync",
    "store-segment-bytes": str(256 * 1024),
    "store-consume-queue-entries-per-file": "100",
    "store-disk-free-bytes-min": "0",
}


@dataclass(slots=True)
class Figures:
    """What happened, for the one line at the end."""

    rounds: int = 0
    acknowledged: int = 0
    later: int = 0
    unacknowledged_stored: int = 0
    failed_sends: int = 0
    start_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        slowest = max(self.start_s, default=0.0)
        return (
            f"{self.rounds} kills, {self.acknowledged} acknowledged, {self.later} of them to "
            f"arrive later, 0 lost, "
            f"{self.unacknowledged_stored} stored without an acknowledgement, "
            f"{self.failed_sends} sends failed, slowest start {slowest:.2f} s"
        )


class Killed:
    """One broker process after another over the same folder."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._replica = Replica(broker_name(0), 0)
        self.address = plan.brokers[self._replica]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> float:
        """Start and wait until it serves; seconds it took."""
        began = time.monotonic()
        self._process = await spawn(broker_child(self._plan, self._replica))
        async with build_channel(self.address) as channel:
            stub = broker_pb2_grpc.AdminServiceStub(channel)
            while True:
                assert self._process.returncode is None, f"no start: {self.log.read_text()[-2000:]}"
                assert time.monotonic() - began < START_TIMEOUT_S, "the broker does not serve"
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await stub.GetStats(broker_pb2.GetStatsRequest(), timeout=1)
                    return time.monotonic() - began
                await asyncio.sleep(0.02)

    @property
    def log(self) -> Path:
        return self._plan.logs / f"{self._replica.name}.log"

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()


async def spawn(spec: ChildSpec) -> asyncio.subprocess.Process:
    if spec.folder is not None:
        spec.folder.mkdir(exist_ok=True)
    with spec.log.open("ab") as sink:
        return await asyncio.create_subprocess_exec(
            *spec.argv, stdout=sink, stderr=sink, cwd=spec.folder
        )


@contextlib.asynccontextmanager
async def etcd_and_nameserver(plan: ClusterPlan) -> AsyncIterator[None]:
    plan.logs.mkdir(parents=True)
    processes = [await spawn(spec) for spec in (etcd_child(plan), nameserver_child(plan))]
    try:
        yield
    finally:
        for process in reversed(processes):
            process.kill()
            await process.wait()


async def send_until(
    stop: asyncio.Event,
    producer: Producer,
    chance: random.Random,
    acknowledged: dict[tuple[int, int], bytes],
    later: dict[bytes, int],
    figures: Figures,
) -> None:
    """`later` gets what is to arrive later: a body, and when it is due in Unix milliseconds."""
    while not stop.is_set():
        body = chance.randbytes(chance.randrange(16, BODY_BYTES_MAX))
        due_ms = None
        if chance.random() < LATER_SHARE:
            due_ms = time.time_ns() // 1_000_000 + chance.randint(*DELAYS_MS)
        message = Message(TOPIC, body, tag="t", keys=(body[:4].hex(),), deliver_at=due_ms)
        try:
            receipt = await producer.send(message)
        except AerobeeError:
            figures.failed_sends += 1
            continue
        figures.acknowledged += 1
        if due_ms is not None:
            later[body] = due_ms
            figures.later += 1
            continue
        place = (receipt.queue.queue_id, receipt.queue_offset)
        assert place not in acknowledged, f"two messages were acknowledged at {place}"
        acknowledged[place] = body


async def read_back(
    address: str, first: dict[int, int], queues: int, later: dict[bytes, int]
) -> dict[tuple[int, int], bytes]:
    """Bodies by (queue, offset), from `first` on; each offset must follow the one before, and
    nothing of `later` was stored there before it was due."""
    found: dict[tuple[int, int], bytes] = {}
    async with build_channel(address) as channel:
        stub = broker_pb2_grpc.PullServiceStub(channel)
        for queue_id in range(queues):
            offset = first.get(queue_id, 0)
            while True:
                result = await stub.Pull(
                    broker_pb2.PullRequest(
                        topic=TOPIC, queue_id=queue_id, offset=offset, max_bytes=1 << 20
                    )
                )
                if result.code != common_pb2.OK:
                    break
                for record in iterate_records(result.records):
                    assert record.queue_offset == offset, "a queue has a gap or a repetition"
                    body = bytes(record.body)
                    early_ms = later.get(body, 0) - record.store_timestamp_ms
                    assert early_ms <= 0, f"a message came {early_ms} ms early"
                    found[queue_id, offset] = body
                    offset += 1
    return found


def check(acknowledged: dict[tuple[int, int], bytes], found: dict[tuple[int, int], bytes]) -> None:
    lost = [place for place, body in acknowledged.items() if found.get(place) != body]
    assert not lost, f"{len(lost)} acknowledged messages are lost or changed: {sorted(lost)[:5]}"


async def read_all(address: str, later: dict[bytes, int]) -> dict[tuple[int, int], bytes]:
    """Everything, once all of `later` has come; AssertionError if that takes too long."""
    deadline = time.monotonic() + COME_TIMEOUT_S
    while True:
        found = await read_back(address, {}, queues=4, later=later)
        missing = later.keys() - set(found.values())
        if not missing:
            return found
        assert time.monotonic() < deadline, f"{len(missing)} messages that were due did not come"
        await asyncio.sleep(0.5)


async def torture(*, rounds: int, seed: int, folder: Path, say: bool = False) -> Figures:
    """Raises AssertionError at the first lost message or failed start."""
    chance = random.Random(seed)
    plan = ClusterPlan(
        data=folder,
        cluster="torture",
        ports=free_ports(brokers=1, chance=chance),
        broker_settings=SETTINGS,
    )
    figures = Figures()
    everything: dict[tuple[int, int], bytes] = {}
    later: dict[bytes, int] = {}
    async with etcd_and_nameserver(plan):
        broker = Killed(plan)
        try:
            figures.start_s.append(await broker.start())
            async with Producer(
                plan.nameserver_address,
                "torture",
                config=ProducerConfig(send_timeout_ms=1_000),
            ) as producer:
                await first_send(producer)
                for _ in range(rounds):
                    await one_round(broker, producer, chance, figures, everything, later)
                    if say and figures.rounds % 10 == 0:
                        print(figures, flush=True)
            found = await read_all(broker.address, later)
            check(everything, found)
            assert len(set(found.values())) == len(found), "a message came twice"
            figures.unacknowledged_stored = len(found) - len(everything) - len(later)
        finally:
            await broker.kill()
    return figures


async def first_send(producer: Producer) -> None:
    """Creates the topic; the nameserver may still be starting."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            await producer.send(Message(TOPIC, b"first"))
            return
        except AerobeeError:
            assert time.monotonic() < deadline, "the cluster takes no messages"
            await asyncio.sleep(0.1)


async def one_round(
    broker: Killed,
    producer: Producer,
    chance: random.Random,
    figures: Figures,
    everything: dict[tuple[int, int], bytes],
    later: dict[bytes, int],
) -> None:
    acknowledged: dict[tuple[int, int], bytes] = {}
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for number in range(SENDERS):
            tasks.create_task(
                send_until(stop, producer, chance, acknowledged, later, figures),
                name=f"sender-{number}",
            )
        await asyncio.sleep(chance.uniform(0.05, 0.6))
        await broker.kill()
        stop.set()
        # Sends that were under way are tried again on the new process.
        figures.start_s.append(await broker.start())
    figures.rounds += 1
    first: dict[int, int] = {}
    for queue_id, offset in acknowledged:
        first[queue_id] = min(offset, first.get(queue_id, offset))
    check(acknowledged, await read_back(broker.address, first, queues=4, later=later))
    assert not acknowledged.keys() & everything.keys(), "an acknowledged offset was given again"
    everything |= acknowledged


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="aerobee-torture-") as folder:
        figures = asyncio.run(
            torture(rounds=chosen.rounds, seed=chosen.seed, folder=Path(folder) / "data", say=True)
        )
    print(f"seed {chosen.seed}: {figures}")


if __name__ == "__main__":
    main()
