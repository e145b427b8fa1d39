"""Consumers over a change of master: three real replicas in processes of their own, a real etcd."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import pytest_asyncio

from aerobee.client_core import ClusterConnection, Offsets
from aerobee.consumer_client import (
    ConsumerConfig,
    MessageQueue,
    Ordering,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from aerobee.consumer_client.flow_control import FlowLimits
from aerobee.runtime import errors
from aerobee.v1 import common_pb2
from tests.support.etcd import running_etcd
from tests.support.replica_group import GROUP, ReplicaGroup, replica_group
from tests.support.waiting import until

pytestmark = pytest.mark.slow


OPTIONS = ConsumerConfig(session_timeout_ms=8_000, commit_interval_ms=100, release_timeout_ms=3_000)
LONG_SESSION = replace(OPTIONS, session_timeout_ms=30_000)
QUEUES = 2


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a real etcd with short elections, so that leases may be short."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


@pytest_asyncio.fixture
async def group(etcd: str, tmp_path: Path) -> AsyncIterator[ReplicaGroup]:
    """Three replicas in sync, with topic `orders`."""
    async with replica_group(tmp_path, etcd) as group:
        await group.in_sync(0, 1, 2)
        await group.create_topic("orders", QUEUES)
        yield group


@dataclass
class Seen:
    """What the members of a group were given."""

    counts: Counter[bytes] = field(default_factory=Counter)
    """By body; a sender that did not hear of its success sends again."""
    offsets: Counter[tuple[int, int]] = field(default_factory=Counter)
    """By queue id and offset."""
    pause_s: float = 0.0
    members: dict[int, set[str]] = field(default_factory=dict)

    def listener(self, member: str) -> Callable[[Sequence[ReceivedMessage]], Awaitable[None]]:
        async def listen(messages: Sequence[ReceivedMessage]) -> None:
            if self.pause_s:
                await asyncio.sleep(self.pause_s)
            for message in messages:
                self.counts[message.body] += 1
                self.offsets[message.queue.queue_id, message.queue_offset] += 1
                self.members.setdefault(message.queue.queue_id, set()).add(member)

        return listen

    def check_once(self) -> None:
        """Every message once, none left out."""
        for queue_id in {queue_id for queue_id, _ in self.offsets}:
            found = sorted(offset for one, offset in self.offsets.elements() if one == queue_id)
            assert found == list(range(len(found)))

    def has(self, bodies: Sequence[bytes]) -> bool:
        return all(body in self.counts for body in bodies)


@dataclass
class Sender:
    """Sends numbered messages to queue 0 for as long as it runs; what was acknowledged is known."""

    group: ReplicaGroup
    stored: list[bytes] = field(default_factory=list)
    master: int = 0
    """Who took the last one."""

    async def run(self) -> None:
        for number in itertools.count():
            body = b"m%d" % number
            while not await self._is_stored(body):
                await asyncio.sleep(0.01)
            self.stored.append(body)
            await asyncio.sleep(0.002)

    async def _is_stored(self, body: bytes) -> bool:
        """By whoever is master; a process that hangs is not waited for."""
        others = [one for one in self.group.replicas if one != self.master]
        for broker_id in (self.master, *others):
            with suppress(errors.AerobeeError, TimeoutError):
                async with asyncio.timeout(0.5):
                    ack = await self.group.send(broker_id, "orders", body, timeout_ms=400)
                if ack.code == common_pb2.OK:
                    self.master = broker_id
                    return True
        return False


@asynccontextmanager
async def sending(group: ReplicaGroup) -> AsyncIterator[Sender]:
    sender = Sender(group)
    task = asyncio.create_task(sender.run())
    try:
        yield sender
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass
class OffsetWatch:
    """Asks for the group's committed offset all the time; it never moves back."""

    connection: ClusterConnection
    group: str
    offsets: list[int] = field(default_factory=list)

    async def run(self) -> None:
        queue = MessageQueue("orders", GROUP, 0)
        offsets = Offsets(self.connection, timeout_ms=1_000)
        while True:
            with suppress(errors.AerobeeError):
                found = (await offsets.committed(self.group, [queue]))[queue]
                self.offsets.append(-1 if found is None else found)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def watching(group: ReplicaGroup, name: str) -> AsyncIterator[OffsetWatch]:
    async with ClusterConnection(group.nameserver, group.cluster) as connection:
        watch = OffsetWatch(connection, name)
        task = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert watch.offsets == sorted(watch.offsets), "a committed offset moved back"


def push(
    group: ReplicaGroup,
    seen: Seen,
    name: str = "m",
    settings: ConsumerConfig = OPTIONS,
    **options: object,
) -> PushConsumer:
    return PushConsumer(
        "g",
        seen.listener(name),
        run_in_thread=False,
        nameservers=group.nameserver,
        client_id=name,
        cluster=group.cluster,
        start_from=StartFrom.FIRST,
        config=settings,
        **options,  # type: ignore[arg-type]
    ).subscribe("orders")


def epochs(consumer: PushConsumer | PullConsumer) -> dict[int, int]:
    return {queue.queue.queue_id: queue.lease_epoch for queue in consumer.statistics().queues}


@pytest.mark.parametrize(
    "ordering",
    [Ordering.ORDERLY, pytest.param(Ordering.CONCURRENT, marks=pytest.mark.thorough)],
)
async def test_a_killed_master_costs_its_members_neither_messages_nor_queues(
    group: ReplicaGroup, ordering: Ordering
) -> None:
    seen = Seen()
    first, second = (push(group, seen, name, ordering=ordering) for name in ("m1", "m2"))
    async with first, second, watching(group, "g") as watch:
        await until(lambda: len(epochs(first)) == len(epochs(second)) == 1)
        before = epochs(first) | epochs(second)
        rebalances = (first.statistics().queues_lost, second.statistics().queues_lost)
        async with sending(group) as sender:
            await until(lambda: len(seen.counts) > 200)
            master = await group.master()
            await group.replicas[master].kill()
            count = len(seen.counts)
            await until(lambda: len(seen.counts) > count + 200)
        await until(lambda: seen.has(sender.stored))
        assert epochs(first) | epochs(second) == before, "the same owners under the same leases"
        assert (first.statistics().queues_lost, second.statistics().queues_lost) == rebalances
        await until(lambda: watch.offsets and watch.offsets[-1] >= len(sender.stored))
    assert len(seen.members[0]) == 1
    seen.check_once()


@pytest.mark.thorough
async def test_without_any_master_members_go_on_from_slaves_under_their_leases(
    group: ReplicaGroup,
) -> None:
    """For as long as their session lasts; a master that comes in time confirms them."""
    for body in (b"m%d" % number for number in range(40)):
        await group.send_until_stored("orders", body)
    master = await group.master()
    others = [replica for one, replica in group.replicas.items() if one != master]
    for replica in others:
        replica.signal(signal.SIGSTOP)
    await group.in_sync(master)
    seen = Seen(pause_s=0.25)
    options = ConsumerConfig(session_timeout_ms=20_000, commit_interval_ms=100)
    consumer = PushConsumer(
        "g",
        seen.listener("m"),
        run_in_thread=False,
        nameservers=group.nameserver,
        client_id="m",
        cluster=group.cluster,
        max_concurrency=1,
        start_from=StartFrom.FIRST,
        config=replace(options, flow=FlowLimits(messages_max=4)),
    ).subscribe("orders")
    async with watching(group, "g") as watch, consumer:
        await until(lambda: len(seen.counts) > 3)
        before = epochs(consumer)
        for replica in others:
            replica.signal(signal.SIGCONT)
        await group.replicas[master].kill()
        killed_s = time.monotonic()
        count = len(seen.counts)
        # More than what it had fetched, and after the dead master's lease.
        await until(
            lambda: len(seen.counts) > count + 15 and time.monotonic() > killed_s + 5,
        )
        assert epochs(consumer) == before
        assert consumer.statistics().queues_lost == 0
        committed = watch.offsets[-1]
        await group.replicas[master].start()
        await until(lambda: watch.offsets[-1] > committed + 10)
        assert epochs(consumer) == before
        await until(lambda: len(seen.counts) == 40)
        await until(lambda: watch.offsets[-1] == 40)
    seen.check_once()


@pytest.mark.thorough
async def test_a_master_that_sleeps_beyond_its_lease_and_wakes_confuses_nobody(
    group: ReplicaGroup,
) -> None:
    seen = Seen()
    consumer = push(group, seen)
    async with watching(group, "g") as watch, consumer:
        await until(lambda: len(epochs(consumer)) == QUEUES)
        before = epochs(consumer)
        async with sending(group) as sender:
            await until(lambda: len(seen.counts) > 50)
            master = await group.master()
            group.replicas[master].signal(signal.SIGSTOP)
            count = len(seen.counts)
            await group.master(not_id=master)
            await until(lambda: len(seen.counts) > count + 50)
            group.replicas[master].signal(signal.SIGCONT)
            count = len(seen.counts)
            await until(lambda: len(seen.counts) > count + 100)
        await until(lambda: seen.has(sender.stored))
        assert epochs(consumer) == before
        assert consumer.statistics().queues_lost == 0
        await until(lambda: watch.offsets[-1] >= len(sender.stored))
    seen.check_once()


async def test_a_hand_over_is_no_event_for_its_members(group: ReplicaGroup) -> None:
    seen = Seen()
    consumer = push(group, seen)
    async with watching(group, "g"), consumer:
        await until(lambda: len(epochs(consumer)) == QUEUES)
        before = epochs(consumer)
        async with sending(group) as sender:
            for turn in range(3):
                await until(lambda turn=turn: len(seen.counts) > 50 * turn)
                await group.in_sync(0, 1, 2)
                master = await group.master()
                await group.hand_over(master)
        await until(lambda: seen.has(sender.stored))
        assert epochs(consumer) == before
        assert consumer.statistics().queues_lost == 0
    seen.check_once()


@pytest.mark.thorough
async def test_polling_and_committing_raise_nothing_when_the_master_is_killed(
    group: ReplicaGroup,
) -> None:
    consumer = PullConsumer(
        "g",
        nameservers=group.nameserver,
        auto_commit=False,
        cluster=group.cluster,
        start_from=StartFrom.FIRST,
        config=OPTIONS,
    ).subscribe("orders")
    counts: Counter[bytes] = Counter()

    async def poll() -> None:
        counts.update(message.body for message in await consumer.poll(100, timeout=0.2))
        await consumer.commit()

    async with watching(group, "g"), consumer, sending(group) as sender:
        while len(counts) < 100:
            await poll()
        await group.replicas[await group.master()].kill()
        end_s = time.monotonic() + 6
        while (
            time.monotonic() < end_s
            or len(counts) <= 150
            or not all(body in counts for body in sender.stored[:150])
        ):
            await poll()
        assert await consumer.committed(consumer.assignment)
        assert await consumer.end_offsets(consumer.assignment)


@pytest.mark.thorough
async def test_broadcasting_goes_on_from_a_slave_at_once(
    group: ReplicaGroup, tmp_path: Path
) -> None:
    for body in (b"m%d" % number for number in range(60)):
        await group.send_until_stored("orders", body)
    seen = Seen(pause_s=0.05)
    consumer = PushConsumer(
        "g",
        seen.listener("m"),
        run_in_thread=False,
        nameservers=group.nameserver,
        broadcasting=True,
        max_concurrency=1,
        offsets_folder=tmp_path / "offsets",
        cluster=group.cluster,
        start_from=StartFrom.FIRST,
        config=replace(OPTIONS, flow=FlowLimits(messages_max=2)),
    ).subscribe("orders")
    async with consumer:
        await until(lambda: len(seen.counts) > 3)
        await group.replicas[await group.master()].kill()
        count = len(seen.counts)
        # Long before the master's lease is over.
        await until(lambda: len(seen.counts) > count + 15, timeout_s=1.9)
        await until(lambda: len(seen.counts) == 60)
    seen.check_once()


@pytest.mark.thorough
async def test_a_reader_far_behind_is_sent_to_a_slave_and_comes_back(
    etcd: str, tmp_path: Path
) -> None:
    async with replica_group(tmp_path, etcd, slave_read_bytes=400_000) as group:
        await group.in_sync(0, 1, 2)
        await group.create_topic("orders", QUEUES)
        for number in range(300):
            await group.send_until_stored("orders", b"%d" % number + bytes(10_000))
        seen = Seen(pause_s=0.002)
        options = replace(OPTIONS, flow=FlowLimits(messages_max=8), fetch_bytes_max=65_536)
        consumer = PushConsumer(
            "g",
            seen.listener("m"),
            run_in_thread=False,
            nameservers=group.nameserver,
            max_concurrency=1,
            cluster=group.cluster,
            start_from=StartFrom.FIRST,
            config=options,
        ).subscribe("orders")
        master = await group.master()
        async with consumer:

            async def read_from() -> dict[int, int]:
                return {one: (await group.stats(one)).messages_out for one in group.replicas}

            await until(lambda: len(seen.counts) == 300)
            out = await read_from()
            assert sum(out[one] for one in out if one != master) > 150
            assert out[master] < 150
            # Near the end it is back.
            await group.send_until_stored("orders", b"last")
            await until(lambda: b"last" in seen.counts)
            assert (await read_from())[master] == out[master] + 1
        seen.check_once()


@pytest.mark.thorough
async def test_a_reader_returns_from_a_slave_that_dies(etcd: str, tmp_path: Path) -> None:
    async with replica_group(tmp_path, etcd, (0, 1), slave_read_bytes=100_000) as group:
        await group.in_sync(0, 1)
        await group.create_topic("orders", QUEUES)
        for number in range(200):
            await group.send_until_stored("orders", b"%d" % number + bytes(10_000))
        seen = Seen(pause_s=0.01)
        options = replace(OPTIONS, flow=FlowLimits(messages_max=8), fetch_bytes_max=65_536)
        consumer = PushConsumer(
            "g",
            seen.listener("m"),
            run_in_thread=False,
            nameservers=group.nameserver,
            max_concurrency=1,
            cluster=group.cluster,
            start_from=StartFrom.FIRST,
            config=options,
        ).subscribe("orders")
        master = await group.master()
        async with consumer:
            await until(lambda: len(epochs(consumer)) == QUEUES)
            before = epochs(consumer)
            await until(lambda: len(seen.counts) > 20)
            assert (await group.stats(1 - master)).messages_out > 0
            assert consumer.statistics().queues[0].reads_from == 1 - master
            await group.replicas[1 - master].kill()
            await until(lambda: len(seen.counts) == 200)
            assert epochs(consumer) == before
            assert consumer.statistics().queues[0].reads_from == master
        seen.check_once()


@pytest.mark.thorough
async def test_many_changes_of_master_one_after_the_other_lose_and_repeat_nothing(
    group: ReplicaGroup,
) -> None:
    """Unless a member's session ends: what was not committed then comes again. Here none does, for
    sessions last longer than any pause of a busy machine; so nothing excuses a repetition."""
    seen = Seen()
    first, second = (push(group, seen, name, LONG_SESSION) for name in ("m1", "m2"))
    async with watching(group, "g") as watch, first, second:
        await until(lambda: len(epochs(first)) == len(epochs(second)) == 1)
        before = epochs(first) | epochs(second)
        async with sending(group) as sender:
            for how in ("kill", "hand over", "stop", "kill"):
                await group.in_sync(0, 1, 2)
                master = await group.master()
                if how == "hand over":
                    await group.hand_over(master)
                else:
                    replica = group.replicas[master]
                    await (replica.kill() if how == "kill" else replica.stop())
                    await group.master(not_id=master)
                    await replica.start()
                count = len(seen.counts)
                await until(lambda count=count: len(seen.counts) > count + 30)
        await until(lambda: seen.has(sender.stored))
        assert epochs(first) | epochs(second) == before
        assert first.statistics().queues_lost == second.statistics().queues_lost == 0
        await until(lambda: watch.offsets[-1] >= len(sender.stored))
    assert len(seen.members[0]) == 1
    seen.check_once()
