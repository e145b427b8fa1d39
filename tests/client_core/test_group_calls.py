"""Questions to a broker group go to whoever is master when they can be answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Self

import pytest
import pytest_asyncio

from aerobee.client_core import ClusterConnection, MessageQueue, Offsets
from aerobee.rpc import own_protocol
from aerobee.rpc import serving as rpc
from aerobee.runtime import errors
from aerobee.runtime.clock import SystemClock
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2

if TYPE_CHECKING:
    from tests.support.fake_cluster import FakeNameserver

QUEUE = MessageQueue("orders", "broker-a", 0)


class Replica(broker_pb2_grpc.OffsetServiceServicer):
    """Answers with its own number, or as the test says."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.refuse: errors.AerobeeError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0
        self._server = rpc.RpcServer(own_protocol.say_error, ["aerobee.v1.OffsetService"])
        self.address = ""

    async def start(self) -> Self:
        broker_pb2_grpc.add_OffsetServiceServicer_to_server(self, self._server.server)
        self.address = f"127.0.0.1:{await self._server.start('127.0.0.1:0')}"
        return self

    async def stop(self) -> None:
        await self._server.stop(0)

    async def _turn(self) -> None:
        self.asked += 1
        await self.answers.wait()
        if self.refuse is not None:
            raise self.refuse

    async def QueryOffsets(
        self, request: broker_pb2.QueryOffsetsRequest, context: Any
    ) -> broker_pb2.QueryOffsetsResponse:
        await self._turn()
        found = broker_pb2.CommittedOffset(
            topic="orders", queue_id=0, code=common_pb2.OK, offset=self.number
        )
        return broker_pb2.QueryOffsetsResponse(offsets=[found])

    async def QueryBounds(
        self, request: broker_pb2.QueryBoundsRequest, context: Any
    ) -> broker_pb2.QueryBoundsResponse:
        await self._turn()
        status = common_pb2.Status(code=common_pb2.OK)
        bounds = broker_pb2.QueueBounds(status=status, max_offset=self.number)
        return broker_pb2.QueryBoundsResponse(bounds=[bounds])


class Group:
    """Two replicas and what the route says of them."""

    def __init__(self, nameserver: FakeNameserver, replicas: list[Replica]) -> None:
        self.nameserver = nameserver
        self.replicas = replicas

    async def elect(self, master: int | None, epoch: int) -> None:
        self.nameserver.replicas = [
            ("broker-a", number, epoch, number == master) for number in range(len(self.replicas))
        ]
        self.nameserver.addresses = {
            number: replica.address for number, replica in enumerate(self.replicas)
        }
        await self.nameserver.publish()


@pytest_asyncio.fixture
async def group(nameserver: FakeNameserver) -> AsyncIterator[Group]:
    group = Group(nameserver, [await Replica(number).start() for number in range(2)])
    await group.elect(0, 1)
    yield group
    for replica in group.replicas:
        replica.answers.set()
        await replica.stop()


async def test_a_question_outlives_the_masters_death_and_its_refusal(
    group: Group, connection: ClusterConnection
) -> None:
    offsets = Offsets(connection, timeout_ms=5_000)
    assert await offsets.committed("g", [QUEUE]) == {QUEUE: 0}
    group.replicas[0].refuse = errors.NotMaster("a slave by now")
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(offsets.committed("g", [QUEUE]))
        await asyncio.sleep(0.2)
        assert not asked.done()
        await group.elect(1, 2)
    assert asked.result() == {QUEUE: 1}


async def test_a_master_that_hangs_is_left_as_soon_as_another_is_elected(
    group: Group, connection: ClusterConnection
) -> None:
    offsets = Offsets(connection, timeout_ms=5_000)
    group.replicas[0].answers.clear()
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(offsets.committed("g", [QUEUE]))
        await asyncio.sleep(0.2)
        await group.elect(1, 2)
        async with asyncio.timeout(2):
            assert await asked == {QUEUE: 1}


async def test_bounds_are_told_by_a_slave_while_committed_offsets_wait_for_a_master(
    group: Group, connection: ClusterConnection
) -> None:
    await group.elect(None, 1)
    quick = Offsets(connection, timeout_ms=200)
    assert (await quick.bounds([QUEUE]))[QUEUE].max_offset_end == 0
    group.replicas[0].refuse = errors.ReplicaBehind("not yet")
    assert (await quick.bounds([QUEUE]))[QUEUE].max_offset_end == 1
    with pytest.raises(errors.NoBrokerAvailable):
        await quick.committed("g", [QUEUE])
    assert [replica.asked for replica in group.replicas] == [2, 1]


async def test_without_an_answer_in_time_the_last_reason_is_told(
    group: Group, connection: ClusterConnection
) -> None:
    group.replicas[0].refuse = errors.ReplicaBehind("not yet")
    with pytest.raises(errors.ReplicaBehind, match="not yet"):
        await Offsets(connection, timeout_ms=300).committed("g", [QUEUE])
    assert group.replicas[0].asked > 1
    group.replicas[0].refuse = errors.IllegalName("never")
    asked = group.replicas[0].asked
    with pytest.raises(errors.IllegalName):
        await Offsets(connection, timeout_ms=5_000).committed("g", [QUEUE])
    assert group.replicas[0].asked == asked + 1, "what will not change is not asked again"


class Jumping(SystemClock):
    """Time that passes while this process stands still."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.slept_s


@pytest.mark.parametrize("of_master", [True, False])
async def test_time_in_which_this_process_stood_still_does_not_count(
    group: Group, of_master: bool
) -> None:
    for replica in group.replicas:
        replica.answers.clear()
    clock = Jumping()

    def asked() -> int:
        return sum(replica.asked for replica in group.replicas)

    async def sleep_like_a_laptop() -> None:
        while asked() < 1:
            await asyncio.sleep(0.01)
        clock.slept_s += 60
        while asked() < (2 if of_master else 3):
            await asyncio.sleep(0.01)
        for replica in group.replicas:
            replica.answers.set()

    async with ClusterConnection(group.nameserver.address, clock=clock) as connection:
        offsets = Offsets(connection, timeout_ms=400)
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            tasks.create_task(sleep_like_a_laptop())
            assert QUEUE in await offsets.bounds([QUEUE], of_master=of_master)
