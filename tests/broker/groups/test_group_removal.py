"""A group is deleted over real gRPC: what its members, and those that come later, live through."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.broker.config import GroupsConfig
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.feature import Progress
from aerobee.rpc.own_protocol import code_of
from aerobee.store.engine.config import StoreConfig
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.groups.test_membership import Participant
from tests.broker.retries.test_sending_back import codes, send_back
from tests.broker.sending.test_sync_flush import GatedDisk
from tests.support.grpcio_client import error_from_rpc
from tests.support.waiting import until


async def commit(broker: Any, group: str, offset: int, queue_id: int = 0, epoch: int = 0) -> int:
    response = await broker.offsets.CommitOffsets(
        broker_pb2.CommitOffsetsRequest(
            group=group,
            offsets=[
                broker_pb2.QueueOffset(
                    topic="t", queue_id=queue_id, offset=offset, lease_epoch=epoch
                )
            ],
        )
    )
    return int(response.results[0].code)


async def offsets(broker: Any, group: str) -> dict[int, int]:
    response = await broker.offsets.QueryOffsets(broker_pb2.QueryOffsetsRequest(group=group))
    return {each.queue_id: each.offset for each in response.offsets}


async def delete(broker: Any, group: str, *, force: bool = False, timeout: float = 5.0) -> Any:
    try:
        return await broker.groups.DeleteGroup(
            broker_pb2.DeleteGroupRequest(group=group, force=force), timeout=timeout
        )
    except grpc.aio.AioRpcError as error:
        return code_of(error_from_rpc(error, "broker"))


async def test_a_deleted_group_is_gone_for_good(start_broker: Any, tmp_path: Path) -> None:
    broker = await start_broker()
    for queue_id in (0, 1):
        await broker.send_bodies("t", queue_id, b"x", b"y")
        assert await commit(broker, "g", 2, queue_id) == common_pb2.OK
        assert await commit(broker, "stays", 1, queue_id) == common_pb2.OK
    member = Participant(broker, "m")
    await member.join()
    await member.say(leave=broker_pb2.Leave())
    assert await member.call.read() is not None
    deleted = await delete(broker, "g")
    assert (deleted.known, deleted.removed_count, deleted.members_ended) == (True, 2, 0)
    assert {each.queue_id: each.offset for each in deleted.removed} == {0: 2, 1: 2}
    assert await offsets(broker, "g") == {}
    assert await offsets(broker, "stays") == {0: 1, 1: 1}
    assert list((await broker.groups.ListGroups(broker_pb2.ListGroupsRequest())).groups) == [
        "stays"
    ]
    saved = json.loads((tmp_path / "store/config/subscriptionGroup.json").read_text())
    assert "g" not in saved["subscriptionGroupTable"]
    again = await delete(broker, "g")
    assert (again.known, again.removed_count) == (False, 0)
    await broker.stop()
    assert await offsets(await start_broker(), "g") == {}


async def test_a_group_that_never_committed_leaves_nothing_of_what_it_finished(
    broker: Any,
) -> None:
    await broker.send_bodies("t", 0, b"0", b"1")
    assert codes(await send_back(broker, 1)) == [common_pb2.OK]
    # A replica that has become master has never had a request of the group.
    broker.opened.groups.remove("g")
    assert (await delete(broker, "g")).known
    assert broker.feature(Progress).state.finished_beyond(GroupQueue("g", "t", 0)) is None


async def test_a_group_with_members_is_not_deleted(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"x")
    member = Participant(broker, "m")
    await member.join()
    await member.acquire(0)
    lease = await member.granted()
    assert await member.commit(1, lease.epoch) == common_pb2.OK
    assert await delete(broker, "g") == common_pb2.GROUP_IN_USE
    assert await offsets(broker, "g") == {0: 1}
    await member.say(leave=broker_pb2.Leave())
    assert (await delete(broker, "g")).removed_count == 1


async def test_force_ends_the_members_and_no_lease_of_before_brings_an_offset_back(
    broker: Any,
) -> None:
    await broker.send_bodies("t", 0, b"x", b"y")
    member = Participant(broker, "m")
    await member.join(session_timeout_ms=800)
    await member.acquire(0)
    lease = await member.granted()
    assert await member.commit(1, lease.epoch) == common_pb2.OK
    deleting = asyncio.create_task(delete(broker, "g", force=True))
    failed = (await member.hears("failed")).failed
    assert failed.code == common_pb2.GROUP_DELETED
    assert await member.commit(2, lease.epoch) == common_pb2.LEASE_EXPIRED
    other = Participant(broker, "n")
    await other.say(join=broker_pb2.Join(group="g", client_id="n", instance="1"))
    assert (await other.hears("failed")).failed.code == common_pb2.GROUP_DELETED
    deleted = await deleting
    assert (deleted.removed_count, deleted.members_ended) == (1, 1)
    assert await member.commit(2, lease.epoch) == common_pb2.LEASE_EXPIRED
    assert await offsets(broker, "g") == {}
    late = Participant(broker, "m", instance="2")
    await late.join()
    await late.acquire(0)
    assert (await late.granted()).never_committed


async def test_force_deletes_nothing_while_a_member_may_still_work_on(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"x")
    member = Participant(broker, "m")
    await member.join(session_timeout_ms=60_000)
    await member.acquire(0)
    lease = await member.granted()
    assert await member.commit(1, lease.epoch) == common_pb2.OK
    assert await delete(broker, "g", force=True, timeout=1.0) == common_pb2.BUSY
    assert await offsets(broker, "g") == {0: 1}


@pytest.mark.parametrize("queue_ids", [[], [1]])
async def test_offsets_of_queues_that_exist_no_more_can_be_deleted(
    start_broker: Any, queue_ids: list[int]
) -> None:
    broker = await start_broker()
    for queue_id in (0, 1):
        await broker.send_bodies("t", queue_id, b"x")
        assert await commit(broker, "g", 1, queue_id) == common_pb2.OK
    await broker.stop()
    broker = await start_broker(topics={})
    response = await broker.offsets.DeleteOffsets(
        broker_pb2.DeleteOffsetsRequest(group="g", topic="t", queue_ids=queue_ids)
    )
    assert response.removed_count == (1 if queue_ids else 2)
    assert await offsets(broker, "g") == ({0: 1} if queue_ids else {})


async def test_an_offset_under_which_a_member_works_is_not_deleted(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"x")
    await broker.send_bodies("t", 1, b"x")
    member = Participant(broker, "m")
    await member.join()
    await member.acquire(0)
    lease = await member.granted()
    assert await member.commit(1, lease.epoch) == common_pb2.OK
    assert await commit(broker, "g", 1, queue_id=1) == common_pb2.OK

    async def deleting(*queue_ids: int) -> Any:
        return await broker.offsets.DeleteOffsets(
            broker_pb2.DeleteOffsetsRequest(group="g", topic="t", queue_ids=queue_ids)
        )

    for queue_ids in ((), (0,), (1, 0)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await deleting(*queue_ids)
        assert code_of(error_from_rpc(refused.value, "broker")) == common_pb2.LEASE_HELD
    assert await offsets(broker, "g") == {0: 1, 1: 1}
    assert (await deleting(1)).removed_count == 1
    assert await offsets(broker, "g") == {0: 1}


async def test_a_queue_is_not_granted_while_its_offset_is_being_deleted(
    start_broker: Any, tmp_path: Path, sync_flush: StoreConfig
) -> None:
    """A lease of that moment, shown to a broker that starts anew, brought the offset back."""
    disk = GatedDisk(tmp_path / "store")
    broker = await start_broker(disk=disk, store=sync_flush)
    await broker.send_bodies("t", 0, b"x")
    assert await commit(broker, "g", 1) == common_pb2.OK
    member = Participant(broker, "m")
    await member.join()
    disk.gate.clear()
    request = broker_pb2.DeleteOffsetsRequest(group="g", topic="t", queue_ids=[0])
    deleting = asyncio.ensure_future(broker.offsets.DeleteOffsets(request))
    key = GroupQueue("g", "t", 0)
    await until(lambda: broker.feature(Progress).journal.writer().is_removing(key))
    await member.acquire(0)
    assert (await member.hears("failed")).failed.code == common_pb2.BUSY
    disk.gate.set()
    assert (await deleting).removed_count == 1
    again = Participant(broker, "m")
    await again.join()
    await again.acquire(0)
    assert (await again.granted()).never_committed


async def test_new_groups_beyond_the_limit_are_refused_and_those_of_before_go_on(
    start_broker: Any,
) -> None:
    broker = await start_broker(groups=GroupsConfig(max=2))
    await broker.send_bodies("t", 0, b"x", b"y")
    member = Participant(broker, "m", group="joined")
    await member.join()
    assert await commit(broker, "committed", 1) == common_pb2.OK
    assert await commit(broker, "third", 1) == common_pb2.LIMIT_REACHED
    other = Participant(broker, "m", group="fourth")
    await other.say(join=broker_pb2.Join(group="fourth", client_id="m", instance="1"))
    failed = (await other.hears("failed")).failed
    assert failed.code == common_pb2.LIMIT_REACHED
    assert "groups.max" in failed.message
    assert await commit(broker, "committed", 2) == common_pb2.OK
    assert await commit(broker, "joined", 1) == common_pb2.OK
    assert (await delete(broker, "committed")).removed_count == 1
    assert await commit(broker, "third", 1) == common_pb2.OK
