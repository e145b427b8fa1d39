"""A consumer by key: each key in order, all keys beside each other, whatever fails."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.consumer_client import (
    Batch,
    Ordering,
    PushConsumer,
    Reject,
    RetryLater,
    RetryPolicy,
    SimpleConsumer,
    StartFrom,
)
from aerobee.consumer_client.listener import Listener
from aerobee.producer_client import Producer
from aerobee.runtime.errors import InvalidArgument
from aerobee.testing import VirtualCluster, faults
from tests.support.own_topic import OwnTopic
from tests.support.waiting import PATIENCE_S, until

KEYS = 8
EACH = 12
PROGRAM = Path(__file__).with_name("keyed_consumer.py")


class Handled:
    """What the members of a group did, and whether each key was in order.

    A message may be handled again from the committed offset on, and then in order again: so a
    message begins only when all before it of its key have been finished at least once.
    """

    def __init__(self) -> None:
        self.finished: dict[str, set[int]] = defaultdict(set)
        self.running: dict[str, object] = {}
        self.calls: Counter[tuple[str, int]] = Counter()
        self.beside = 0

    def begin(self, key: str, number: int, member: object) -> None:
        assert key not in self.running, f"two of {key} at a time"
        missing = set(range(number)) - self.finished[key]
        assert not missing, f"{number} of {key} before {missing}"
        self.running[key] = member
        self.calls[key, number] += 1
        self.beside = max(self.beside, len(self.running))

    def end(self, key: str, number: int, *, is_finished: bool) -> None:
        del self.running[key]
        if is_finished:
            self.finished[key].add(number)

    @property
    def is_done(self) -> bool:
        return sum(map(len, self.finished.values())) == KEYS * EACH


class World:
    """Members that are slow, fail, come and go, while their broker fails."""

    def __init__(self, cluster: VirtualCluster, seed: int, *, by_pop: bool) -> None:
        self.cluster = cluster
        self.by_pop = by_pop
        self.chance = random.Random(seed)
        self.handled = Handled()
        self.rejected: set[tuple[str, int]] = set()
        self.broken: list[AssertionError] = []

    def member(self, name: str) -> AbstractAsyncContextManager[object]:
        handle = self.listener(name)
        if self.by_pop:
            return self.shared(name, handle)
        return PushConsumer(
            "g",
            handle,
            nameservers=self.cluster.nameservers,
            client_id=name,
            start_from=StartFrom.FIRST,
            order_by="key",
        ).subscribe("orders")

    @asynccontextmanager
    async def shared(self, name: str, handle: Listener) -> AsyncIterator[None]:
        consumer = SimpleConsumer(
            "g", nameservers=self.cluster.nameservers, client_id=name, invisible=12
        )
        async with consumer.subscribe("orders"), asyncio.TaskGroup() as group:
            group.create_task(
                consumer.listen(handle, retry=RetryPolicy(delays_ms=(500, 5_000), scale=1.0))
            )
            yield
            consumer.stop()

    def listener(self, name: str) -> Listener:
        async def handle(messages: Sequence[ReceivedMessage]) -> RetryLater | Reject | None:
            key, number = messages[0].sharding_key or "", int(messages[0].body)
            try:
                self.handled.begin(key, number, name)
            except AssertionError as error:
                self.broken.append(error)
                raise
            is_finished = False
            answer: RetryLater | Reject | None = None
            try:
                await asyncio.sleep(self.chance.choice([0.0, 0.1, 3.0]))
                fate = self.chance.random()
                if fate < 0.15:
                    answer = RetryLater(after=self.chance.choice([0.5, 20.0]))
                elif fate < 0.2:
                    answer = Reject("never")
                    self.rejected.add((key, number))
                elif fate < 0.3:
                    raise ValueError("it failed")
                is_finished = not isinstance(answer, RetryLater)
                return answer
            finally:
                self.handled.end(key, number, is_finished=is_finished)

        return handle

    async def lag(self) -> int | None:
        async with AdminClient(self.cluster.nameservers) as admin:
            return (await admin.groups.describe("g")).lag

    async def live(self) -> None:
        async with AsyncExitStack() as members:
            await members.enter_async_context(self.member("m0"))
            for number in range(1, 4):
                await self.cluster.advance(seconds=self.chance.choice([1, 7]))
                async with self.member(f"m{number}"):
                    await self.cluster.advance(seconds=self.chance.choice([3, 30]))
                    await self.fault()
            for _ in range(200):
                if self.handled.is_done and await self.lag() == 0:
                    break
                await self.cluster.advance(seconds=30)
            await self.cluster.advance(seconds=30)

    async def fault(self) -> None:
        kind = self.chance.choice(["crash", "stop", "cut", "none"])
        if kind == "crash":
            faults.kill(self.cluster)
            await self.cluster.advance(seconds=20)
            await self.cluster.start_broker()
        elif kind == "stop":
            await self.cluster.stop_broker()
            await self.cluster.advance(seconds=20)
            await self.cluster.start_broker()
        elif kind == "cut":
            with faults.cut_network(self.cluster, "broker-a"):
                await self.cluster.advance(minutes=2)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("by_pop", [False, True], ids=["by leases", "by POP"])
async def test_each_key_stays_in_order_whatever_fails(seed: int, by_pop: bool) -> None:
    async with VirtualCluster(seed=seed) as cluster, Producer(cluster.nameservers) as producer:
        # By POP there are more members than queues.
        await cluster.create_topic("orders", queues=1 if by_pop else 2)
        if by_pop:
            async with AdminClient(cluster.nameservers) as admin:
                await admin.groups.configure("g", ordered=True)
        for number in range(EACH):
            for key in range(KEYS):
                await producer.send(Message("orders", b"%d" % number, sharding_key=f"k{key}"))
        world = World(cluster, seed, by_pop=by_pop)
        await world.live()
        assert not world.broken
        assert world.handled.is_done
        assert world.handled.beside > 2
        assert await world.lag() == 0


async def test_a_key_that_fails_holds_up_only_itself(own: OwnTopic) -> None:
    def key(message: ReceivedMessage) -> str:
        return message.body.decode()[0]

    seen: list[bytes] = []

    async def handle(batch: Batch) -> None:
        seen.extend(message.body for message in batch)
        if batch[0].body.startswith(b"a") and len(seen) < 40:
            raise ValueError

    await own.store([b"%c%d" % ("abcd"[n % 4].encode(), n) for n in range(20)])
    consumer = own.push(handle, order_by=key, suspend_ms=5, consume_batch_max=2)
    async with consumer:
        await until(lambda: len(seen) >= 15 and consumer.statistics().handled == 15)
        assert consumer.statistics().queues[0].safe_offset == 0
        await until(lambda: consumer.statistics().lag == 0)
    for letter in "bcd":
        mine = [body for body in seen if body.startswith(letter.encode())]
        assert mine == sorted(mine, key=lambda body: int(body[1:]))
    assert seen.count(b"a0") > 1
    assert seen.count(b"a8") == 1


@pytest.mark.slow
async def test_each_key_is_in_order_when_members_are_killed(own: OwnTopic, tmp_path: Path) -> None:
    bodies = [b"%d %d" % (key, number) for number in range(40) for key in range(KEYS)]
    await own.store(bodies)
    said: list[tuple[int, int]] = []
    for _ in range(20):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROGRAM),
            *(own.nameservers, str(tmp_path), own.group_name, own.topic),
            stdout=asyncio.subprocess.PIPE,
        )
        lines = process.stdout
        assert lines is not None
        for _ in range(90):
            if len(set(said)) == len(bodies):
                break
            said.append(parsed(await asyncio.wait_for(lines.readline(), PATIENCE_S)))
        process.kill()
        said += [parsed(line) async for line in lines if line.endswith(b"\n") and line.strip()]
        await process.wait()
        if len(set(said)) == len(bodies):
            break
    assert len(set(said)) == len(bodies)
    done: dict[int, set[int]] = defaultdict(set)
    for key, number in said:
        assert set(range(number)) <= done[key]
        done[key].add(number)


def parsed(line: bytes) -> tuple[int, int]:
    key, number = map(int, line.split())
    return key, number


def test_a_queue_or_a_key_is_in_order_not_both() -> None:
    def handle(messages: Sequence[ReceivedMessage]) -> None: ...

    with pytest.raises(InvalidArgument, match="choose one"):
        PushConsumer("g", handle, order_by="key", ordering=Ordering.ORDERLY)
    with pytest.raises(InvalidArgument, match="order_by"):
        PushConsumer("g", handle, order_by="queue")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="coroutine function"):
        PushConsumer("g", handle, handle_timeout=1.0)


async def test_a_call_that_takes_too_long_is_a_failure(own: OwnTopic) -> None:
    await own.store([b"0"])
    attempts: list[int] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        attempts.append(messages[0].reconsume_times)
        if len(attempts) == 1:
            await asyncio.sleep(3_600)

    consumer = own.push(handle, ordering=Ordering.ORDERLY, suspend_ms=5, handle_timeout=0.05)
    async with consumer:
        await until(lambda: consumer.statistics().handled == 1)
    assert attempts == [0, 1]
