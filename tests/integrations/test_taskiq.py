"""taskiq on a cluster: tasks end as they say, and a killed worker loses none."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from taskiq import AsyncBroker, Context, InMemoryBroker, TaskiqDepends
from taskiq.brokers.inmemory_broker import InmemoryResultBackend
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver

from aerobee.client_core.admin_client import AdminClient
from aerobee.consumer_client import Reject, RetryLater, SimpleConsumer
from aerobee.integrations.taskiq import TASK_NAME, AerobeeBroker
from aerobee.runtime.errors import IllegalName, InvalidArgument
from aerobee.testing import VirtualCluster
from tests.integrations.letters import next_letter
from tests.support.own_topic import OwnTopic
from tests.support.waiting import PATIENCE_S, until

CONTEXT: Any = TaskiqDepends()
PROGRAM = Path(__file__).with_name("taskiq_worker.py")


def broker_of(own: OwnTopic, **options: Any) -> AerobeeBroker:
    broker = AerobeeBroker(own.nameservers, topic=own.topic, group=own.group_name, **options)
    broker.with_result_backend(InmemoryResultBackend())
    return broker


@asynccontextmanager
async def working(broker: AsyncBroker, **options: Any) -> AsyncIterator[None]:
    """A worker of this process, as `taskiq worker` runs one."""
    broker.is_worker_process = True
    await broker.startup()
    finish = asyncio.Event()
    with ThreadPoolExecutor() as threads:
        receiver = Receiver(broker, threads, max_async_tasks=10, run_startup=False, **options)
        running = asyncio.create_task(receiver.listen(finish))
        try:
            yield
        finally:
            finish.set()
            await running
            await broker.shutdown()


async def until_done(own: OwnTopic) -> None:
    """The group has finished everything."""
    async with AdminClient(own.nameservers) as admin:

        async def has_no_lag() -> bool:
            return (await admin.groups.describe(own.group_name)).lag == 0

        await until(has_no_lag)


async def test_a_task_runs_once_and_its_result_comes_back(own: OwnTopic) -> None:
    broker = broker_of(own)
    ran: Counter[int] = Counter()

    @broker.task
    async def double(number: int) -> int:
        ran[number] += 1
        return 2 * number

    @broker.task
    def fail() -> None:
        raise ValueError("no")

    async with working(broker):
        sent = [await double.kiq(number) for number in range(20)]
        results = [await each.wait_result(timeout=PATIENCE_S) for each in sent]
        failed = await (await fail.kiq()).wait_result(timeout=PATIENCE_S)
        await until_done(own)
    assert [each.return_value for each in results] == [2 * number for number in range(20)]
    assert set(ran.values()) == {1}
    assert failed.is_err


async def test_a_task_that_asks_for_it_comes_again_and_has_one_result(own: OwnTopic) -> None:
    broker = broker_of(own)
    attempts: list[float] = []

    @broker.task
    async def charge() -> int:
        attempts.append(asyncio.get_running_loop().time())
        if len(attempts) < 3:
            raise RetryLater("the bank is closed", after=0.3)
        return len(attempts)

    async with working(broker):
        result = await (await charge.kiq()).wait_result(timeout=PATIENCE_S)
        await until_done(own)
    assert result.return_value == 3
    assert attempts[2] - attempts[0] >= 0.6


async def test_a_rejected_task_is_a_dead_letter_with_its_reason(own: OwnTopic) -> None:
    broker = broker_of(own)

    @broker.task(task_name="charge")
    def charge(number: int) -> None:
        raise Reject(f"no customer {number}")

    async with working(broker):
        result = await (await charge.kiq(7)).wait_result(timeout=PATIENCE_S)
        letter = await next_letter(own)
    assert isinstance(result.error, Reject)
    assert json.loads(letter.body)["args"] == [7]
    assert letter.reason.startswith("no customer 7 [test_taskiq.py:")


@pytest.mark.parametrize("on_failure", ["retry", "reject"])
async def test_what_becomes_of_a_failed_task_can_be_chosen(own: OwnTopic, on_failure: str) -> None:
    broker = broker_of(own, on_failure=on_failure, retry_after=0.01)
    attempts: list[int] = []

    @broker.task
    async def fail() -> int:
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("a bad day")
        return len(attempts)

    async with working(broker):
        sent = await fail.kiq()
        if on_failure == "retry":
            assert (await sent.wait_result(timeout=PATIENCE_S)).return_value == 3
        else:
            assert (await next_letter(own)).reason.startswith("ValueError: a bad day")
            assert len(attempts) == 1
        await until_done(own)


async def test_what_taskiq_cannot_read_is_a_dead_letter(own: OwnTopic) -> None:
    await own.store([b"no task"])
    async with working(broker_of(own)):
        letter = await next_letter(own)
    assert letter.body == b"no task"
    assert letter.reason.startswith("taskiq cannot read it")


async def test_a_task_that_a_worker_does_not_know_goes_to_one_that_does(own: OwnTopic) -> None:
    old, new = broker_of(own, retry_after=0.2), broker_of(own)
    ran = asyncio.Event()

    async def added() -> None:
        ran.set()

    sent = new.task(task_name="added")(added)
    await new.startup()
    await sent.kiq()
    async with working(old):
        await asyncio.sleep(0.5)
        assert not ran.is_set()
    async with working(new):
        await asyncio.wait_for(ran.wait(), PATIENCE_S)
        await until_done(own)


async def test_labels_say_when_a_task_arrives_and_in_which_order(own: OwnTopic) -> None:
    broker = broker_of(own)
    arrived: list[float] = []
    loop = asyncio.get_running_loop()

    @broker.task(task_name="remind")
    async def remind() -> None:
        arrived.append(loop.time())

    async with working(broker):
        began = loop.time()
        sending = remind.kicker().with_labels(delay=0.8, sharding_key="customer 7")
        await sending.kiq()
        await until(lambda: arrived)
        with pytest.raises(SendTaskError):
            await remind.kicker().with_labels(delay="soon").kiq()
    assert arrived[0] - began >= 0.8
    reader = SimpleConsumer(f"{own.group_name}-reader", nameservers=own.nameservers)
    async with reader.subscribe(own.topic):
        (message,) = await reader.receive(1, timeout=PATIENCE_S)
        await reader.ack(message)
    assert message.properties[TASK_NAME] == "remind"
    assert message.sharding_key == "customer 7"


async def test_a_task_may_acknowledge_by_itself(own: OwnTopic) -> None:
    broker = broker_of(own)

    @broker.task(ack_type="manual")
    async def by_hand(context: Context = CONTEXT) -> None:
        await context.ack()

    async with working(broker):
        await (await by_hand.kiq()).wait_result(timeout=PATIENCE_S)
        await until_done(own)


async def test_tasks_are_tested_in_memory_as_with_any_broker() -> None:
    broker = InMemoryBroker(await_inplace=True)

    @broker.task
    async def charge(number: int) -> int:
        if number < 0:
            raise Reject("a negative number")
        return number

    assert (await (await charge.kiq(1)).wait_result()).return_value == 1
    assert isinstance((await (await charge.kiq(-1)).wait_result()).error, Reject)


async def test_a_long_task_stays_with_its_worker() -> None:
    async with VirtualCluster() as cluster:
        await cluster.create_topic("films", queues=1)
        brokers = [
            AerobeeBroker(cluster.nameservers, topic="films", group="g", invisible=10)
            for _ in range(2)
        ]
        begun: list[AsyncBroker] = []

        def task_of(broker: AerobeeBroker) -> Any:
            @broker.task(task_name="cut")
            async def cut() -> None:
                begun.append(broker)
                await asyncio.sleep(300)

            return cut

        tasks = [task_of(broker) for broker in brokers]
        async with working(brokers[0]), working(brokers[1]):
            await cluster.advance(seconds=1)
            await tasks[0].kiq()
            await cluster.advance(minutes=6)
        assert len(begun) == 1


def test_mistakes_are_told_at_once() -> None:
    with pytest.raises(IllegalName):
        AerobeeBroker(topic="a b")
    with pytest.raises(InvalidArgument, match="on_failure"):
        AerobeeBroker(on_failure="ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="retry_after"):
        AerobeeBroker(retry_after=-1)


async def test_a_broker_that_was_not_started_says_so() -> None:
    broker = AerobeeBroker()

    @broker.task
    async def nothing() -> None: ...

    with pytest.raises(SendTaskError) as caught:
        await nothing.kiq()
    assert "startup()" in str(caught.value.__cause__)


@pytest.mark.slow
async def test_tasks_of_killed_workers_are_done_by_others(own: OwnTopic) -> None:
    broker = broker_of(own)

    @broker.task(task_name="note")
    async def note(number: int) -> None: ...

    await broker.startup()
    for number in range(60):
        await note.kiq(number)
    await broker.shutdown()
    said: list[int] = []
    for kills in range(4):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROGRAM),
            *(own.nameservers, own.group_name, own.topic),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        lines = process.stdout
        wanted = 15 if kills < 3 else 60
        try:
            async with asyncio.timeout(60):
                mine = 0
                while mine < wanted and len(set(said)) < 60:
                    said.append(int(await lines.readline()))
                    mine += 1
        finally:
            process.kill()
            said += [int(line) async for line in lines if line.endswith(b"\n")]
            await process.wait()
    assert set(said) == set(range(60))
    assert max(Counter(said).values()) <= 4
