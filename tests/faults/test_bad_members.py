"""Members that break the rules of a group: a second one of the same name, old leases, nonsense."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import grpc
import pytest

from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2
from tests.faults.members import Member
from tests.faults.serving import MIB, Client, refusal

NewMember = Callable[..., Member]


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group that no other test uses."""
    return f"g-{abs(hash(request.node.name))}"


@pytest.fixture
def new_member(client: Client, group: str) -> NewMember:
    def make(client_id: str = "m", instance: str = "i1") -> Member:
        return Member(client, group=group, client_id=client_id, instance=instance)

    return make


async def test_a_second_live_member_with_the_same_client_id_is_refused_and_harms_the_first_not(
    client: Client, new_member: NewMember, group: str
) -> None:
    first = new_member(instance="i1")
    await first.join()
    epoch = (await first.acquire(0)).epoch
    second = new_member(instance="i2")
    with pytest.raises(errors.DuplicateClient, match=r"in use.*choose another, or wait [01]\.\d s"):
        await second.join()
    await first.beat()
    assert (await client.commit(group, "t", 0, 0, epoch=epoch)).code == common_pb2.OK
    # Once the first is dead and its time is over, its name is free again.
    first.vanish()
    await asyncio.sleep(1.1)
    third = new_member(instance="i3")
    await third.join()
    assert (await third.acquire(0)).epoch > epoch
    await third.leave()


async def test_a_lease_ends_with_its_session_and_so_do_its_pulls_and_commits(
    client: Client, new_member: NewMember, group: str
) -> None:
    if not await client.records("t", 1):
        await client.send("t", 1, b"a", b"b")
    silent = new_member("silent")
    await silent.join(session_timeout_ms=400)
    granted = await silent.acquire(1)
    assert granted.never_committed
    assert (await client.commit(group, "t", 1, 1, epoch=granted.epoch)).code == common_pb2.OK
    stream = client.pull_service.PullStream(timeout=10)
    await stream.write(
        broker_pb2.PullCommand(
            subscribe=broker_pb2.SubscribeQueue(
                handle=5,
                request=broker_pb2.PullRequest(
                    topic="t", queue_id=1, offset=1, group=group, lease_epoch=granted.epoch
                ),
                credit_bytes=MIB,
            )
        )
    )
    assert (await stream.read()).result.record_count > 0
    heir = new_member("heir")
    await heir.join(session_timeout_ms=5_000)
    asked_s = time.monotonic()
    inherited = await heir.acquire(1)
    assert time.monotonic() - asked_s < 2
    assert inherited.epoch > granted.epoch
    assert (inherited.committed_offset, inherited.never_committed) == (1, False)
    # The old holder: its stream has ended, its pull too, its commit is refused.
    ended = await silent.ending()
    assert isinstance(ended, errors.UnknownMember)
    assert "no heartbeat came for 0.4 s; join again" in str(ended)
    frame = await stream.read()
    assert (frame.handle, frame.result.code) == (5, common_pb2.LEASE_EXPIRED)
    assert "acquire the queue again" in frame.result.message
    status = await client.commit(group, "t", 1, 0, epoch=granted.epoch)
    assert status.code == common_pb2.LEASE_EXPIRED
    assert "acquire the queue again" in status.message
    without = await client.commit(group, "t", 1, 0)
    assert without.code == common_pb2.LEASE_HELD
    assert "'heir' holds queue 1" in without.message
    assert "only it may commit" in without.message
    code, error = await refusal(
        client.pull("t", 1, 0, group=group, lease_epoch=granted.epoch, wait_ms=1_000)
    )
    assert (code, type(error)) == (grpc.StatusCode.ABORTED, errors.LeaseExpired)
    assert await client.committed(group, "t", 1) == 1
    stream.cancel()
    await heir.leave()


async def test_an_invented_or_future_lease_is_no_lease(
    client: Client, new_member: NewMember, group: str
) -> None:
    member = new_member()
    await member.join()
    epoch = (await member.acquire(2)).epoch
    for invented in (epoch + 1, epoch - 1, -1, 2**63 - 1):
        status = await client.commit(group, "t", 2, 0, epoch=invented)
        assert status.code == common_pb2.LEASE_EXPIRED, invented
    assert await client.committed(group, "t", 2) == -1
    stranger = new_member("stranger")
    joined = await stranger.join(held=[broker_pb2.HeldLease(topic="t", queue_id=2, epoch=epoch)])
    assert list(joined.confirmed) == []
    await stranger.tell(release=broker_pb2.ReleaseLease(topic="t", queue_id=2, epoch=epoch))
    await stranger.beat()
    assert (await client.commit(group, "t", 2, 0, epoch=epoch)).code == common_pb2.OK
    await stranger.leave()
    await member.leave()


@pytest.mark.parametrize(
    ("event", "error", "words"),
    [
        ({"heartbeat": broker_pb2.Heartbeat()}, errors.InvalidArgument, "must be Join"),
        ({}, errors.InvalidArgument, "must be Join"),
        (
            {"join": broker_pb2.Join(group="no pe", client_id="m")},
            errors.IllegalName,
            "use letters, digits",
        ),
        ({"join": broker_pb2.Join(group="", client_id="m")}, errors.IllegalName, "give it 1 to"),
        ({"join": broker_pb2.Join(group="g", client_id="")}, errors.IllegalName, "1 to 255"),
        (
            {"join": broker_pb2.Join(group="g", client_id="a\nb")},
            errors.IllegalName,
            "printable",
        ),
    ],
    ids=["heartbeat first", "nothing", "group name", "no group", "no client id", "client id"],
)
async def test_a_stream_that_does_not_begin_with_a_good_join_is_ended(
    client: Client, event: dict[str, object], error: type[errors.AerobeeError], words: str
) -> None:
    before = await client.stats()
    member = Member(client, group="g", client_id="m")
    await member.tell(**event)
    ended = await member.ending()
    assert type(ended) is error
    assert words in str(ended)
    after = await client.stats()
    assert (after.members, after.groups) == (before.members, before.groups)


async def test_nonsense_in_a_good_session_ends_the_stream_and_keeps_the_lease_to_its_time(
    client: Client, new_member: NewMember, group: str
) -> None:
    member = new_member()
    await member.join()
    epoch = (await member.acquire(3)).epoch
    await member.tell(acquire=broker_pb2.AcquireLease(topic="t", queue_id=-1))
    ended = await member.ending()
    assert isinstance(ended, errors.InvalidArgument)
    assert "queue id -1 is negative" in str(ended)
    assert (await client.commit(group, "t", 3, 0, epoch=epoch)).code == common_pb2.OK
    await asyncio.sleep(1.1)
    assert (await client.commit(group, "t", 3, 0, epoch=epoch)).code == common_pb2.LEASE_EXPIRED
