"""Offsets and queue leases over changes of master, with replicas in processes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2
from tests.support.etcd import running_etcd
from tests.support.grpcio_client import build_channel
from tests.support.replica_group import ReplicaGroup, replica_group
from tests.support.waiting import until

pytestmark = pytest.mark.slow

GROUP = "g"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


@asynccontextmanager
async def connected(group: ReplicaGroup, broker_id: int) -> AsyncIterator[grpc.aio.Channel]:
    async with build_channel(group.replicas[broker_id].address) as channel:
        yield channel


async def ready(group: ReplicaGroup, messages: int = 10) -> int:
    """All in sync, and messages in queue 0 of topic `t`; returns the master's id."""
    await group.in_sync(*group.replicas)
    await group.create_topic("t")
    master = await group.send_until_stored("t", b"first")
    for _ in range(messages - 1):
        assert (await group.send(master, "t", b"x")).code == common_pb2.OK
    return master


async def commit(group: ReplicaGroup, broker_id: int, offset: int, epoch: int = 0) -> int:
    async with connected(group, broker_id) as channel:
        response = await broker_pb2_grpc.OffsetServiceStub(channel).CommitOffsets(
            broker_pb2.CommitOffsetsRequest(
                group=GROUP,
                client_id="m",
                offsets=[
                    broker_pb2.QueueOffset(topic="t", queue_id=0, offset=offset, lease_epoch=epoch)
                ],
            ),
            timeout=5,
        )
        return int(response.results[0].code)


async def reset(group: ReplicaGroup, broker_id: int, offset: int) -> None:
    async with connected(group, broker_id) as channel:
        response = await broker_pb2_grpc.OffsetServiceStub(channel).ResetOffsets(
            broker_pb2.ResetOffsetsRequest(
                group=GROUP,
                offsets=[broker_pb2.QueueOffset(topic="t", queue_id=0, offset=offset)],
            ),
            timeout=5,
        )
        assert response.results[0].code == common_pb2.OK


async def described(group: ReplicaGroup, broker_id: int) -> int:
    """What one replica, master or slave, tells operators; -1 while it tells nothing."""
    async with connected(group, broker_id) as channel:
        try:
            response = await broker_pb2_grpc.GroupServiceStub(channel).DescribeGroup(
                broker_pb2.DescribeGroupRequest(group=GROUP), timeout=5
            )
        except grpc.aio.AioRpcError:
            return -1
        return int(response.queues[0].committed_offset)


async def committed(group: ReplicaGroup, broker_id: int) -> int:
    """What a master tells, once it can tell."""
    found = -2

    async def told() -> bool:
        nonlocal found
        async with connected(group, broker_id) as channel:
            try:
                response = await broker_pb2_grpc.OffsetServiceStub(channel).QueryOffsets(
                    broker_pb2.QueryOffsetsRequest(
                        group=GROUP, queues=[broker_pb2.TopicQueue(topic="t", queue_id=0)]
                    ),
                    timeout=5,
                )
            except grpc.aio.AioRpcError as failure:
                # It has not heard yet that it is master, or is about to begin.
                later = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE)
                assert failure.code() in later, failure  # noqa: PT017
                return False
            found = response.offsets[0].offset
            return True

    await until(told)
    return found


class Member:
    """One member's stream to one replica."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._call: Any = broker_pb2_grpc.GroupServiceStub(channel).Membership(timeout=30)

    async def join(self, *held: broker_pb2.HeldLease) -> broker_pb2.Joined:
        """Raises the typed error of a refused join."""
        await self._call.write(
            broker_pb2.MemberEvent(
                join=broker_pb2.Join(
                    group=GROUP,
                    client_id="m",
                    instance="1",
                    subscriptions=[broker_pb2.Subscription(topic="t")],
                    session_timeout_ms=10_000,
                    held=held,
                )
            )
        )
        joined = await self.next("joined")
        assert isinstance(joined, broker_pb2.Joined)
        return joined

    async def acquire(self) -> broker_pb2.LeaseGranted:
        await self._call.write(
            broker_pb2.MemberEvent(acquire=broker_pb2.AcquireLease(topic="t", queue_id=0))
        )
        granted = await self.next("granted")
        assert isinstance(granted, broker_pb2.LeaseGranted)
        return granted

    async def next(self, kind: str) -> Any:
        while (event := await self._call.read()) is not grpc.aio.EOF:
            if event.WhichOneof("event") == kind:
                return getattr(event, kind)
            if event.WhichOneof("event") == "failed":
                raise error_from_code(event.failed.code, event.failed.message)
        raise AssertionError(f"the stream ended without {kind}")


async def joined_again(
    group: ReplicaGroup, broker_id: int, held: broker_pb2.HeldLease
) -> broker_pb2.Joined:
    """A member that comes back to a new master and shows what it holds."""
    while True:
        async with connected(group, broker_id) as channel:
            try:
                return await Member(channel).join(held)
            except (errors.ReplicaBehind, errors.NotMaster):
                await asyncio.sleep(0.02)


async def test_no_acknowledged_commit_is_lost_and_no_offset_moves_back_with_the_master(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd) as group:
        master = await ready(group)
        for offset in range(1, 9):
            assert await commit(group, master, offset) == common_pb2.OK
        await group.replicas[master].kill()
        successor = await group.send_until_stored("t", b"after")
        assert await committed(group, successor) == 8
        await reset(group, successor, 3)
        assert await commit(group, successor, 4) == common_pb2.OK
        await group.replicas[master].start()
        await group.in_sync(*group.replicas)
        for broker_id in group.replicas:

            async def knows(broker_id: int = broker_id) -> bool:
                return await described(group, broker_id) == 4

            await until(knows)
        done = await group.hand_over(successor, master)
        assert done.master_id == master
        assert await committed(group, master) == 4
        await group.send_until_stored("t", b"last")
        assert await commit(group, master, 2) == common_pb2.OK, "acknowledged, and too late"
        assert await committed(group, master) == 4


async def test_the_next_master_tells_how_often_a_message_was_tried_in_order(
    tmp_path: Path, etcd: str
) -> None:
    async with replica_group(tmp_path, etcd) as group:
        master = await ready(group)
        async with connected(group, master) as channel:
            response = await broker_pb2_grpc.OffsetServiceStub(channel).SendBack(
                broker_pb2.SendBackRequest(
                    group=GROUP,
                    client_id="m",
                    topic="t",
                    attempts=2,
                    messages=[broker_pb2.FailedMessage(offset=1)],
                ),
                timeout=5,
            )
        assert response.results[0].stays
        await group.replicas[master].kill()
        successor = await group.send_until_stored("t", b"after")
        await committed(group, successor)
        async with connected(group, successor) as channel:
            member = Member(channel)
            await member.join()
            granted = await member.acquire()
        assert (granted.tried_offset, granted.attempts) == (1, 2)


async def test_slaves_take_no_commits_and_no_members(tmp_path: Path, etcd: str) -> None:
    async with replica_group(tmp_path, etcd) as group:
        master = await ready(group)
        slave = (master + 1) % 3
        assert await commit(group, slave, 1) == common_pb2.NOT_MASTER
        async with connected(group, slave) as channel:
            with pytest.raises(errors.NotMaster):
                await Member(channel).join()


@pytest.mark.parametrize("planned", [True, False])
async def test_a_member_keeps_its_queue_over_a_change_of_master(
    tmp_path: Path, etcd: str, planned: bool
) -> None:
    async with replica_group(tmp_path, etcd) as group:
        master = await ready(group)
        async with connected(group, master) as channel:
            member = Member(channel)
            await member.join()
            lease = await member.acquire()
            assert await commit(group, master, 5, lease.epoch) == common_pb2.OK
            if planned:
                successor = (await group.hand_over(master)).master_id
            else:
                await group.replicas[master].kill()
                successor = await group.send_until_stored("t", b"after")
        held = broker_pb2.HeldLease(topic="t", queue_id=0, epoch=lease.epoch)
        joined = await joined_again(group, successor, held)
        assert [one.epoch for one in joined.confirmed] == [lease.epoch]
        assert await commit(group, successor, 6, lease.epoch) == common_pb2.OK
        assert await commit(group, successor, 7, lease.epoch + 1) == common_pb2.LEASE_EXPIRED
        assert await commit(group, successor, 7) == common_pb2.LEASE_HELD
        assert await committed(group, successor) == 6


async def test_a_deleted_group_stays_deleted_on_every_replica(tmp_path: Path, etcd: str) -> None:
    """Its master is killed right after it has answered; the next one and a replica that was away
    know nothing of the old group: a new one's smaller offset counts everywhere."""
    async with replica_group(tmp_path, etcd) as group:
        master = await ready(group)
        away = next(broker_id for broker_id in group.replicas if broker_id != master)
        assert await commit(group, master, 7) == common_pb2.OK
        await group.replicas[away].kill()
        async with connected(group, master) as channel:
            deleted = await broker_pb2_grpc.GroupServiceStub(channel).DeleteGroup(
                broker_pb2.DeleteGroupRequest(group=GROUP), timeout=30
            )
        assert (deleted.known, deleted.removed_count) == (True, 1)
        await group.replicas[master].kill()
        await group.replicas[away].start()
        successor = await group.send_until_stored("t", b"after")
        assert await committed(group, successor) == -1
        await group.replicas[master].start()
        await group.in_sync(*group.replicas)
        assert await commit(group, successor, 2) == common_pb2.OK, "a group of that name begins"
        for broker_id in group.replicas:

            async def knows(broker_id: int = broker_id) -> bool:
                return await described(group, broker_id) == 2

            await until(knows)
