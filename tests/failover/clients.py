"""The clients of a harmed cluster: producers, two members of a consumer group, and an observer who
asks for committed offsets all the time. They run through all faults without a restart, and write
down what they see.

A lane is one producer and one queue; its messages are numbered and a few of them are under way at a
time. Each producer has one more lane, whose messages arrive later: some at a time, some after a
delay level; and one whose messages a second group fails to handle: once, twice, or for ever.
Nothing here knows of any fault.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from aerobee.client_core import ClusterConnection, GroupAdmin
from aerobee.client_core.admin_groups import BackOff
from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import QUERY_OFFSETS
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client import ConsumerConfig, ConsumeResult, PushConsumer, StartFrom
from aerobee.producer_client import Producer, ProducerConfig, SendStatus
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2, nameserver_pb2
from tests.failover.history import (
    RETRIES_MAX,
    Acknowledged,
    Committed,
    Delivered,
    History,
    Lane,
    Place,
    body_of,
    failures_of,
    is_failing,
    read_body,
)
from tests.failover.world import GROUP, QUEUES, TOPIC
from tests.support.waiting import PATIENCE_S

CONSUMER_GROUP = "billing"
PRODUCERS = 2
MEMBERS = 2
IN_FLIGHT_PER_LANE = 4
BODY_BYTES_MAX = 1_500
SEND_TIMEOUT_MS = 25_000
CAUGHT_UP_TIMEOUT_S = 40.0
FAILING_GROUP = "refunds"
FAILING_TAG = "fails"
FAILING_QUEUE = 2
BACK_OFF = BackOff(initial_ms=200, max_ms=1_000)
CONFIGURE_EVERY_S = 1.0
LATER_QUEUE = 1
DELAYS_MS = (200, 3_000)
LEVEL_1_MS = 1_000
SETTLED_S = 0.5
"""What is due that may be lost has come by then, if it was not."""
OBSERVE_EVERY_S = 0.1


class Group(Protocol):
    """The broker group GROUP, wherever it runs, with the topic TOPIC."""

    @property
    def cluster(self) -> str: ...

    @property
    def nameserver_addresses(self) -> list[str]: ...

    @property
    def replicas(self) -> Sequence[int]: ...

    def address(self, broker_id: int) -> str: ...

    async def record(self) -> nameserver_pb2.GroupRecord:
        """As a nameserver has it; master_id -1 if none can tell."""
        ...

    async def until(
        self, holds: Callable[[], Coroutine[Any, Any, bool]], what: str, timeout_s: float
    ) -> None:
        """AssertionError when it takes too long."""
        ...

    async def account(self) -> str:
        """For a person who looks for the cause."""
        ...


class Clients:
    """Use `open_clients`. Sends wait until `resume`."""

    def __init__(self, world: Group, chance: random.Random, *, pace_s: float) -> None:
        self.history = History()
        self._world = world
        self._chance = chance
        self._pace_s = pace_s
        self._sending = asyncio.Event()
        self._idle = asyncio.Event()
        self._under_way = 0
        self._end = False
        self._seen: set[Place] = set()
        self.producers: dict[str, Producer] = {}
        """By name."""
        self._observers = Channels()

    def resume(self) -> None:
        self._sending.set()

    async def pause(self) -> None:
        """No more messages; returns when every send has ended."""
        self._sending.clear()
        while self._under_way:
            await asyncio.sleep(0.01)

    async def nothing_waits(self, may_lose: Sequence[tuple[float, float]] = ()) -> None:
        """No more sends are under way: until everything that arrives later has been delivered, but
        for what was acknowledged in times of `may_lose`."""
        history = self.history
        if not history.due_ms:
            return
        expected = {
            (one.lane, one.number)
            for one in history.acknowledged
            if (one.lane, one.number) in history.due_ms
            and not any(begin <= one.acknowledged_s <= end for begin, end in may_lose)
        }
        await asyncio.sleep(max(history.due_ms.values()) / 1_000 - time.time() + SETTLED_S)

        async def holds() -> bool:
            return expected <= {read_body(one.body) for one in history.delivered}

        await self._world.until(holds, "messages that arrive later", CAUGHT_UP_TIMEOUT_S)

    async def failures_end(self) -> None:
        """No more sends are under way: until every message that fails was handled, or has failed so
        often that it does not come again."""
        history = self.history
        expected = {
            (one.lane, one.number): min(failures_of(one.number), RETRIES_MAX)
            for one in history.acknowledged
            if is_failing(one.lane)
        }

        async def holds() -> bool:
            return all(
                name in history.handled
                if times < RETRIES_MAX
                else history.attempts.get(name, 0) >= RETRIES_MAX
                for name, times in expected.items()
            )

        await self._world.until(holds, "messages that come again", CAUGHT_UP_TIMEOUT_S)

    async def acknowledged_after(self, moment_s: float, timeout_s: float = PATIENCE_S) -> float:
        """Until a message sent after `moment_s` is acknowledged; the pause in seconds."""
        deadline_s = time.monotonic() + timeout_s
        while (pause_s := self.history.pause_s(moment_s)) is None:
            assert time.monotonic() < deadline_s, (
                f"no acknowledgement for {timeout_s} s\n{await self._world.account()}"
            )
            await asyncio.sleep(0.005)
        return pause_s

    def account(self) -> str:
        """How each lane stands and what its producer waits for, for a person who looks for the
        cause."""
        history, now_s = self.history, time.monotonic()
        acknowledged = Counter(one.lane for one in history.acknowledged)
        last_s = {one.lane: one.acknowledged_s for one in history.acknowledged}
        lines = [f"{self._under_way} sends under way, failed: {history.failed[-5:]}"]
        for lane, attempted in sorted(history.attempted.items()):
            lines.append(
                f"{lane.producer}, queue {lane.queue_id}: {attempted} sent, {acknowledged[lane]} "
                f"acknowledged, the last {now_s - last_s.get(lane, 0):.1f} s ago"
            )
        for name, producer in self.producers.items():
            with suppress(errors.ShuttingDown):
                lines.append(f"{name}: waits for {producer.obstacles()}; {producer.statistics()}")
        return "\n".join(lines)

    async def caught_up(self, places: set[Place]) -> None:
        """Until the members were given all of `places` and their offsets are committed."""
        ends: dict[int, int] = {}
        for place in places:
            ends[place.queue_id] = max(place.offset + 1, ends.get(place.queue_id, 0))

        async def holds() -> bool:
            return places <= self._seen and (await self._committed_of_master()) == ends

        try:
            await self._world.until(holds, "consumers that caught up", CAUGHT_UP_TIMEOUT_S)
        except AssertionError as error:
            missing = sorted((one.queue_id, one.offset) for one in places - self._seen)
            raise AssertionError(
                f"{len(missing)} messages are not delivered: {missing[:5]}; "
                f"ends {ends}, committed {await self._committed_of_master()}\n{error}"
            ) from None

    async def send_lane(self, producer: Producer, lane: Lane, *, is_later: bool = False) -> None:
        queue = MessageQueue(TOPIC, GROUP, lane.queue_id)
        room = asyncio.Semaphore(IN_FLIGHT_PER_LANE)
        async with asyncio.TaskGroup() as sends:
            while not self._end:
                await self._sending.wait()
                await room.acquire()
                if not self._sending.is_set():
                    room.release()
                    continue
                number = self.history.attempted.get(lane, 0)
                self.history.attempted[lane] = number + 1
                self._under_way += 1
                sends.create_task(self._send(producer, queue, lane, number, room, is_later))
                await asyncio.sleep(self._chance.uniform(0.2, 1.8) * self._pace_s)

    async def _send(
        self,
        producer: Producer,
        queue: MessageQueue,
        lane: Lane,
        number: int,
        room: asyncio.Semaphore,
        is_later: bool,
    ) -> None:
        sent_s = time.monotonic()
        body = body_of(lane, number, bytes(self._chance.randrange(BODY_BYTES_MAX)))
        message = self._later(lane, number, body) if is_later else Message(TOPIC, body)
        if is_failing(lane):
            message = Message(TOPIC, body, tag=FAILING_TAG)
        try:
            receipt = await producer.send(message, queue=queue)
        except errors.AerobeeError as error:
            waited_s = time.monotonic() - sent_s
            self.history.failed.append(
                f"{lane} {number} after {waited_s:.1f} s: {type(error).__name__}: {error}"
            )
        else:
            if receipt.status is SendStatus.OK:
                self.history.acknowledged.append(
                    Acknowledged(lane, number, receipt.queue_offset, sent_s, time.monotonic())
                )
            else:
                self.history.failed.append(f"{lane} {number}: {receipt.status}")
        finally:
            self._under_way -= 1
            room.release()

    def _later(self, lane: Lane, number: int, body: bytes) -> Message:
        now_ms = time.time_ns() // 1_000_000
        if self._chance.random() < 1 / 4:
            self.history.due_ms[lane, number] = now_ms + LEVEL_1_MS
            return Message(TOPIC, body, delay_level=1)
        due_ms = now_ms + self._chance.randint(*DELAYS_MS)
        self.history.due_ms[lane, number] = due_ms
        return Message(TOPIC, body, deliver_at=due_ms)

    def listen(self, messages: Sequence[ReceivedMessage]) -> None:
        now_s = time.monotonic()
        for message in messages:
            place = Place(message.queue.queue_id, message.queue_offset)
            self._seen.add(place)
            self.history.delivered.append(Delivered(place, bytes(message.body), now_s))

    def fail(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        """The listener of the second group. It is given one at a time."""
        for message in messages:
            lane, number = read_body(bytes(message.body))
            times, failures = message.record.reconsume_times, failures_of(number)
            attempts = self.history.attempts
            attempts[lane, number] = max(times, attempts.get((lane, number), 0))
            if times < failures:
                if number % 2:
                    return ConsumeResult.RETRY_LATER
                raise ValueError(f"{lane} {number} fails")
            self.history.handled.add((lane, number))
        return ConsumeResult.SUCCESS

    async def configure(self) -> None:
        """Again and again: a new master may not have heard how the group's messages come again."""
        world = self._world
        async with ClusterConnection(world.nameserver_addresses, world.cluster) as connection:
            while not self._end:
                with suppress(errors.AerobeeError):
                    await GroupAdmin(connection).configure(
                        FAILING_GROUP, retries_max=RETRIES_MAX, back_off=BACK_OFF
                    )
                await asyncio.sleep(CONFIGURE_EVERY_S)

    async def observe(self) -> None:
        """Asks every broker in turn of time, all brokers at once."""
        while not self._end:
            before = await self._world.record()
            answers = await asyncio.gather(
                *(self._committed_of(one) for one in self._world.replicas)
            )
            after = await self._world.record()
            is_same = before.epoch == after.epoch and before.master_id == after.master_id
            now_s = time.monotonic()
            for broker_id, offsets in zip(self._world.replicas, answers, strict=True):
                by_master = is_same and broker_id == after.master_id
                self.history.committed += [
                    Committed(queue_id, offset, broker_id, by_master, now_s)
                    for queue_id, offset in offsets.items()
                ]
            await asyncio.sleep(OBSERVE_EVERY_S)

    async def _committed_of_master(self) -> dict[int, int]:
        master_id = (await self._world.record()).master_id
        return await self._committed_of(master_id) if master_id >= 0 else {}

    async def _committed_of(self, broker_id: int) -> dict[int, int]:
        """By queue; empty if the broker does not tell."""
        with suppress(errors.AerobeeError):
            answer = await self._observers.call(
                self._world.address(broker_id),
                QUERY_OFFSETS,
                broker_pb2.QueryOffsetsRequest(group=CONSUMER_GROUP),
                timeout_ms=1_000,
            )
            return {
                one.queue_id: one.offset
                for one in answer.offsets
                if one.topic == TOPIC and one.code == common_pb2.OK
            }
        return {}

    async def close(self) -> None:
        self._end = True
        self._sending.set()
        await self._observers.close()


@asynccontextmanager
async def open_clients(
    world: Group, chance: random.Random, *, pace_s: float = 0.03, with_failures: bool = False
) -> AsyncIterator[Clients]:
    """Producers, members and the observer. `pace_s` lies between two messages of a lane;
    `with_failures`: some messages fail."""
    clients = Clients(world, chance, pace_s=pace_s)
    config = ProducerConfig(send_timeout_ms=SEND_TIMEOUT_MS, close_timeout_ms=1_000)
    async with asyncio.TaskGroup() as tasks:
        members = [
            PushConsumer(
                CONSUMER_GROUP,
                clients.listen,
                run_in_thread=False,
                nameservers=world.nameserver_addresses,
                consume_batch_max=32,
                start_from=StartFrom.FIRST,
                client_id=f"member-{number}",
                cluster=world.cluster,
                config=ConsumerConfig(session_timeout_ms=3_000, commit_interval_ms=200),
            ).subscribe(TOPIC)
            for number in range(MEMBERS)
        ]
        if with_failures:
            members += _failing_members(world, clients)
        running = [tasks.create_task(member.run(), name=member.client_id) for member in members]
        background = [tasks.create_task(clients.observe(), name="observer")]
        if with_failures:
            background.append(tasks.create_task(clients.configure(), name="configuration"))
        background += [
            tasks.create_task(_produce(world, clients, f"producer-{number}", config, with_failures))
            for number in range(PRODUCERS)
        ]
        try:
            yield clients
        finally:
            await clients.close()
            for member in members:
                member.stop()
            for task in background:
                task.cancel()
            await asyncio.wait(running, timeout=5)
            for task in running:
                task.cancel()


def _failing_members(world: Group, clients: Clients) -> list[PushConsumer]:
    return [
        PushConsumer(
            FAILING_GROUP,
            clients.fail,
            run_in_thread=False,
            nameservers=world.nameserver_addresses,
            start_from=StartFrom.FIRST,
            client_id=f"failing-member-{number}",
            cluster=world.cluster,
            config=ConsumerConfig(session_timeout_ms=3_000, commit_interval_ms=200),
        ).subscribe(TOPIC, FAILING_TAG)
        for number in range(MEMBERS)
    ]


async def _produce(
    world: Group, clients: Clients, name: str, config: ProducerConfig, with_failures: bool
) -> None:
    async with (
        Producer(world.nameserver_addresses, world.cluster, config=config) as producer,
        asyncio.TaskGroup() as lanes,
    ):
        clients.producers[name] = producer
        for queue_id in range(QUEUES):
            lanes.create_task(clients.send_lane(producer, Lane(name, queue_id)))
        lane = Lane(f"{name}-later", LATER_QUEUE)
        lanes.create_task(clients.send_lane(producer, lane, is_later=True))
        if with_failures:
            lane = Lane(f"{name}-failing", FAILING_QUEUE)
            lanes.create_task(clients.send_lane(producer, lane))
