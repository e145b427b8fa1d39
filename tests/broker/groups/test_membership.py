"""Membership, leases and commits over real gRPC, as members live through them."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import grpc
import pytest

from aerobee.rpc.own_protocol import code_of
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.grpcio_client import error_from_rpc


class Participant:
    """One membership stream; events of no interest are kept until asked for."""

    def __init__(
        self, broker: Any, client_id: str, *, instance: str = "1", group: str = "g"
    ) -> None:
        self.broker = broker
        self.client_id = client_id
        self.group = group
        self.instance = instance
        self.call = broker.groups.Membership()
        self.early: list[Any] = []

    async def join(
        self,
        *,
        session_timeout_ms: int = 60_000,
        held: list[broker_pb2.LeaseGranted] | None = None,
        **join: Any,
    ) -> Any:
        await self.say(
            join=broker_pb2.Join(
                group=self.group,
                client_id=self.client_id,
                instance=self.instance,
                subscriptions=[broker_pb2.Subscription(topic="t")],
                session_timeout_ms=session_timeout_ms,
                held=[
                    broker_pb2.HeldLease(topic=one.topic, queue_id=one.queue_id, epoch=one.epoch)
                    for one in held or []
                ],
                **join,
            )
        )
        return (await self.hears("joined")).joined

    async def say(self, **event: Any) -> None:
        await self.call.write(broker_pb2.MemberEvent(**event))

    async def acquire(self, queue_id: int) -> None:
        await self.say(acquire=broker_pb2.AcquireLease(topic="t", queue_id=queue_id))

    async def granted(self) -> Any:
        return (await self.hears("granted")).granted

    async def release(self, lease: broker_pb2.LeaseGranted) -> None:
        await self.say(
            release=broker_pb2.ReleaseLease(
                topic=lease.topic, queue_id=lease.queue_id, epoch=lease.epoch
            )
        )

    async def hears(self, kind: str, timeout_s: float = 5.0) -> Any:
        """The next event of a kind."""
        for event in self.early:
            if event.WhichOneof("event") == kind:
                self.early.remove(event)
                return event
        async with asyncio.timeout(timeout_s):
            while True:
                event = await self.call.read()
                assert event is not grpc.aio.EOF, f"the stream ended before {kind}"
                if event.WhichOneof("event") == kind:
                    return event
                self.early.append(event)

    async def sees(self, *members: str) -> Any:
        """The next view that shows exactly these members."""
        while True:
            view = (await self.hears("members")).members
            if [member.client_id for member in view.members] == list(members):
                return view

    async def commit(self, offset: int, epoch: int, queue_id: int = 0) -> int:
        response = await self.broker.offsets.CommitOffsets(
            broker_pb2.CommitOffsetsRequest(
                group=self.group,
                client_id=self.client_id,
                offsets=[
                    broker_pb2.QueueOffset(
                        topic="t", queue_id=queue_id, offset=offset, lease_epoch=epoch
                    )
                ],
            )
        )
        return int(response.results[0].code)


async def test_members_hear_of_each_other(broker: Any) -> None:
    first, second = Participant(broker, "a"), Participant(broker, "b")
    joined = await first.join(session_timeout_ms=5_000)
    assert (joined.session_timeout_ms, list(joined.confirmed)) == (5_000, [])
    assert (await first.sees("a")).members[0].subscriptions[0].topic == "t"
    await second.join()
    generation = (await first.sees("a", "b")).generation
    await second.sees("a", "b")
    await second.say(leave=broker_pb2.Leave())
    assert (await first.sees("a")).generation > generation
    assert await second.call.read() is grpc.aio.EOF


async def test_session_timeouts_are_kept_within_bounds_and_have_a_default(broker: Any) -> None:
    for wanted_ms, given_ms in ((0, 1_000), (1, 200), (10**9, 120_000)):
        joined = await Participant(broker, f"c{wanted_ms}").join(session_timeout_ms=wanted_ms)
        assert joined.session_timeout_ms == given_ms


async def test_heartbeats_are_acknowledged_and_may_change_subscriptions(broker: Any) -> None:
    member = Participant(broker, "a")
    await member.join()
    first = await member.sees("a")
    await member.say(heartbeat=broker_pb2.Heartbeat(sequence=9))
    ack = (await member.hears("heartbeat")).heartbeat
    assert (ack.sequence, ack.generation) == (9, first.generation)
    await member.say(
        heartbeat=broker_pb2.Heartbeat(
            sequence=10,
            subscriptions_changed=True,
            subscriptions=[broker_pb2.Subscription(topic="u")],
        )
    )
    view = await member.sees("a")
    assert view.members[0].subscriptions[0].topic == "u"
    assert view.generation > first.generation


async def test_a_queue_passes_to_the_next_member_with_the_last_committed_offset(
    broker: Any,
) -> None:
    await broker.send_bodies("t", 0, *[b"x"] * 10)
    first, second = Participant(broker, "a"), Participant(broker, "b")
    await first.join()
    await second.join()
    await first.acquire(0)
    lease = await first.granted()
    assert lease.never_committed
    await second.acquire(0)
    assert await first.commit(4, lease.epoch) == common_pb2.OK
    assert await first.commit(7, lease.epoch) == common_pb2.OK
    await first.release(lease)
    taken = await second.granted()
    assert (taken.committed_offset, taken.never_committed) == (7, False)
    assert taken.epoch > lease.epoch
    assert await first.commit(9, lease.epoch) == common_pb2.LEASE_EXPIRED
    assert await first.commit(9, 0) == common_pb2.LEASE_HELD
    assert await second.commit(8, taken.epoch) == common_pb2.OK


async def test_a_silent_member_loses_its_queues_and_its_stream(broker: Any) -> None:
    silent, lively = Participant(broker, "a"), Participant(broker, "b")
    await silent.join(session_timeout_ms=300)
    await lively.join()
    await silent.acquire(0)
    lease = await silent.granted()
    await lively.acquire(0)
    assert (await lively.granted()).epoch > lease.epoch
    assert (await silent.hears("revoked")).revoked.epoch == lease.epoch
    assert (await silent.hears("failed")).failed.code == common_pb2.UNKNOWN_MEMBER
    assert await silent.call.read() is grpc.aio.EOF
    await lively.sees("b")


async def test_a_member_whose_connection_breaks_keeps_its_queues_until_it_is_back(
    broker: Any,
) -> None:
    member, other = Participant(broker, "a"), Participant(broker, "b")
    await member.join()
    await other.join()
    await member.acquire(0)
    await member.acquire(1)
    leases = [await member.granted(), await member.granted()]
    await other.acquire(0)
    await other.acquire(1)
    member.call.cancel()
    again = Participant(broker, "a")
    joined = await again.join(held=leases[:1])
    assert [held.epoch for held in joined.confirmed] == [leases[0].epoch]
    # The one that was not shown waits until it is certain that the member does not use it: this
    # might be an old stream of a member that has opened another one since.
    await again.release(leases[1])
    assert (await other.granted()).queue_id == 1
    assert await again.commit(0, leases[0].epoch) == common_pb2.OK


async def test_the_same_client_id_twice_is_refused_while_the_first_lives(broker: Any) -> None:
    first = Participant(broker, "a", instance="1")
    await first.join(session_timeout_ms=500)
    second = Participant(broker, "a", instance="2")
    await second.call.write(
        broker_pb2.MemberEvent(join=broker_pb2.Join(group="g", client_id="a", instance="2"))
    )
    failed = (await second.hears("failed")).failed
    assert failed.code == common_pb2.DUPLICATE_CLIENT
    assert "'a'" in failed.message
    assert await second.call.read() is grpc.aio.EOF
    await asyncio.sleep(0.6)
    await Participant(broker, "a", instance="2").join()


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (broker_pb2.MemberEvent(), common_pb2.INVALID_ARGUMENT),
        (broker_pb2.MemberEvent(heartbeat=broker_pb2.Heartbeat()), common_pb2.INVALID_ARGUMENT),
        (
            broker_pb2.MemberEvent(join=broker_pb2.Join(group="g g", client_id="a")),
            common_pb2.ILLEGAL_NAME,
        ),
        (
            broker_pb2.MemberEvent(join=broker_pb2.Join(group="g", client_id="")),
            common_pb2.ILLEGAL_NAME,
        ),
        (
            broker_pb2.MemberEvent(
                join=broker_pb2.Join(
                    group="g",
                    client_id="a",
                    subscriptions=[
                        broker_pb2.Subscription(
                            topic="t", filter=broker_pb2.Filter(expression="||")
                        )
                    ],
                )
            ),
            common_pb2.FILTER_ILLEGAL,
        ),
    ],
)
async def test_a_wrong_first_event_is_refused(
    broker: Any, event: broker_pb2.MemberEvent, code: int
) -> None:
    member = Participant(broker, "a")
    await member.call.write(event)
    assert (await member.hears("failed")).failed.code == code
    assert await member.call.read() is grpc.aio.EOF


async def test_broadcasting_members_get_no_leases(broker: Any) -> None:
    member = Participant(broker, "a")
    await member.join(broadcasting=True)
    await member.acquire(0)
    assert (await member.hears("failed")).failed.code == common_pb2.INVALID_ARGUMENT


async def test_a_running_pull_ends_when_its_lease_moves(broker: Any) -> None:
    first, second = Participant(broker, "a"), Participant(broker, "b")
    await first.join()
    await second.join()
    await first.acquire(0)
    lease = await first.granted()
    await second.acquire(0)
    call = broker.pull.PullStream()
    await call.write(
        broker_pb2.PullCommand(
            subscribe=broker_pb2.SubscribeQueue(
                handle=1,
                request=broker_pb2.PullRequest(
                    topic="t", queue_id=0, group="g", lease_epoch=lease.epoch
                ),
                credit_bytes=1_000_000,
            )
        )
    )
    await broker.send_bodies("t", 0, b"x")
    assert (await call.read()).result.record_count == 1
    await first.release(lease)
    ended = await call.read()
    assert (ended.handle, ended.result.code) == (1, common_pb2.LEASE_EXPIRED)
    await broker.send_bodies("t", 0, b"y")
    taken = await second.granted()
    request = broker_pb2.PullRequest(topic="t", queue_id=0, group="g", lease_epoch=lease.epoch)
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await broker.pull.Pull(request)
    assert code_of(error_from_rpc(failure.value, "the broker")) == common_pb2.LEASE_EXPIRED
    request.lease_epoch = taken.epoch
    assert (await broker.pull.Pull(request)).record_count == 2


async def test_a_single_pull_that_waits_ends_when_its_lease_moves(broker: Any) -> None:
    member = Participant(broker, "a")
    await member.join()
    await member.acquire(0)
    lease = await member.granted()
    pulling = asyncio.ensure_future(
        broker.pull.Pull(
            broker_pb2.PullRequest(
                topic="t", queue_id=0, group="g", lease_epoch=lease.epoch, wait_ms=20_000
            )
        )
    )
    await asyncio.sleep(0.05)
    await member.release(lease)
    await asyncio.sleep(0.05)
    await broker.send_bodies("t", 0, b"not for the former holder")
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await asyncio.wait_for(pulling, 5)
    assert code_of(error_from_rpc(failure.value, "the broker")) == common_pb2.LEASE_EXPIRED


async def test_a_reset_revokes_the_lease_and_the_next_one_starts_there(broker: Any) -> None:
    await broker.send_bodies("t", 0, *[b"x"] * 10)
    member = Participant(broker, "a")
    await member.join()
    await member.acquire(0)
    lease = await member.granted()
    assert await member.commit(9, lease.epoch) == common_pb2.OK
    response = await broker.offsets.ResetOffsets(
        broker_pb2.ResetOffsetsRequest(
            group="g",
            offsets=[
                broker_pb2.QueueOffset(topic="t", queue_id=0, offset=2),
                broker_pb2.QueueOffset(topic="t", queue_id=0, offset=11),
            ],
        )
    )
    assert [result.code for result in response.results] == [
        common_pb2.OK,
        common_pb2.INVALID_ARGUMENT,
    ]
    revoked = (await member.hears("revoked")).revoked
    assert revoked.epoch == lease.epoch
    assert "reset" in revoked.reason
    await member.acquire(0)
    assert (await member.granted()).committed_offset == 2


async def test_a_group_is_described_with_members_leases_and_lag(broker: Any) -> None:
    await broker.send_bodies("t", 1, *[b"x"] * 5)
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await broker.groups.DescribeGroup(broker_pb2.DescribeGroupRequest(group="g"))
    assert code_of(error_from_rpc(failure.value, "the broker")) == common_pb2.GROUP_NOT_FOUND
    member, listener = Participant(broker, "b"), Participant(broker, "a")
    await member.join()
    await listener.join(broadcasting=True)
    await member.acquire(1)
    lease = await member.granted()
    await member.commit(3, lease.epoch, queue_id=1)
    described = await broker.groups.DescribeGroup(broker_pb2.DescribeGroupRequest(group="g"))
    assert [(one.client_id, one.broadcasting) for one in described.members] == [
        ("a", True),
        ("b", False),
    ]
    (queue,) = described.queues
    assert (queue.queue_id, queue.lease_holder, queue.lease_epoch) == (1, "b", lease.epoch)
    assert (queue.committed_offset, queue.min_offset, queue.max_offset) == (3, 0, 5)
    listed = await broker.groups.ListGroups(broker_pb2.ListGroupsRequest())
    assert list(listed.groups) == ["g"]


# ---------------------------------------------------------------------------- restarts


async def test_after_a_clean_restart_members_come_back_to_their_queues(
    start_broker: Any, broker: Any
) -> None:
    await broker.send_bodies("t", 0, *[b"x"] * 5)
    member, other = Participant(broker, "a"), Participant(broker, "b")
    await member.join()
    await other.join()
    await member.acquire(0)
    lease = await member.granted()
    await member.commit(3, lease.epoch)
    broker.lifecycle.stop.set()
    assert (await member.hears("failed")).failed.code == common_pb2.SHUTTING_DOWN
    await broker.task
    broker = await start_broker()
    # Nobody else gets the queue meanwhile, but free ones are given at once.
    other = Participant(broker, "b")
    await other.join()
    await other.sees("a", "b")
    await other.acquire(0)
    await other.acquire(1)
    free = await other.granted()
    assert free.queue_id == 1
    assert free.epoch > lease.epoch
    member = Participant(broker, "a")
    assert [held.epoch for held in (await member.join(held=[lease])).confirmed] == [lease.epoch]
    assert await member.commit(4, lease.epoch) == common_pb2.OK
    await member.release(lease)
    assert (await other.granted()).committed_offset == 4


async def test_after_a_crash_only_former_holders_get_queues_until_their_sessions_are_over(
    start_broker: Any, broker: Any, tmp_path: Any
) -> None:
    member = Participant(broker, "a")
    await member.join(session_timeout_ms=1_500)
    await member.acquire(0)
    await member.acquire(1)
    leases = [await member.granted(), await member.granted()]
    # A copy of the folder is what a crash at this moment leaves.
    crashed = tmp_path / "crashed"
    await asyncio.to_thread(shutil.copytree, tmp_path / "store", crashed)
    broker = await start_broker(root=crashed)
    began = asyncio.get_running_loop().time()
    other = Participant(broker, "b")
    await other.join()
    await other.acquire(0)
    await other.acquire(1)
    member = Participant(broker, "a")
    joined = await member.join(held=leases[:1])
    assert [held.epoch for held in joined.confirmed] == [leases[0].epoch]
    assert await member.commit(0, leases[0].epoch) == common_pb2.OK
    granted = await other.granted()
    assert granted.queue_id == 1
    assert granted.epoch > leases[1].epoch
    assert asyncio.get_running_loop().time() - began >= 1.2


ODD = "x\x1b[2J\n"


@pytest.mark.parametrize(
    "odd",
    [
        {"client_id": ODD},
        {"instance": ODD},
        {"subscriptions": [broker_pb2.Subscription(topic=ODD)]},
        {
            "subscriptions": [
                broker_pb2.Subscription(topic="t", filter=broker_pb2.Filter(expression=ODD))
            ]
        },
    ],
)
async def test_text_that_cannot_be_shown_joins_no_group(broker: Any, odd: dict[str, Any]) -> None:
    member = Participant(broker, "m")
    await member.say(
        join=broker_pb2.Join(**{"group": "g", "client_id": "m", "instance": "1", **odd})
    )
    failed = (await member.hears("failed")).failed
    assert failed.code in (common_pb2.INVALID_ARGUMENT, common_pb2.ILLEGAL_NAME)
    assert failed.message.isprintable()


async def test_text_that_cannot_be_shown_gets_no_queue_and_commits_nothing(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"x")
    member = Participant(broker, "m")
    await member.join()
    await member.say(acquire=broker_pb2.AcquireLease(topic=ODD, queue_id=0))
    assert (await member.hears("failed")).failed.code == common_pb2.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await broker.offsets.CommitOffsets(
            broker_pb2.CommitOffsetsRequest(
                group="g",
                client_id=ODD,
                offsets=[broker_pb2.QueueOffset(topic="t", queue_id=0, offset=1)],
            )
        )
    assert code_of(error_from_rpc(refused.value, "broker")) == common_pb2.ILLEGAL_NAME
