"""Quotas of a broker over real gRPC: what is slowed, what is refused, and that others go on."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest

from aerobee.access.quota import (
    DEFAULT,
    GROUP,
    GROUPS_CREATED,
    SUBSCRIPTIONS,
    Quota,
    Subject,
    encode_quota,
)
from aerobee.access.quotas import DELAYED, REFUSED
from aerobee.access.table import Record, Records
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import Method
from aerobee.rpc.own_protocol import RETRY_METADATA_KEY
from aerobee.runtime.errors import QuotaExceeded
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.broker.conftest import batch_of
from tests.support.v2_calls import V2, sent_message
from tests.support.waiting import PATIENCE_S, until

KIB = 1024
SEND = Method("/aerobee.v1.SendService/Send", broker_pb2.SendRequest, broker_pb2.SendResponse)
BODY = bytes(10 * KIB)


def set_quotas(broker: Any, *quotas: tuple[Subject, Quota]) -> None:
    """As a nameserver tells a broker. Without access control callers are told apart by address, so
    the default is for everyone here."""
    broker.access.book.hear(
        Records.of((), (), [Record(str(who), encode_quota(who, quota)) for who, quota in quotas])
    )


def for_all(**limits: int) -> tuple[Subject, Quota]:
    return Subject(DEFAULT), Quota(**limits)


def of_group(name: str, **limits: int) -> tuple[Subject, Quota]:
    return Subject(GROUP, name), Quota(**limits)


def met(broker: Any, field: str, how: str) -> int:
    return int(broker.access.quotas.met[field, how])


async def stored(broker: Any) -> int:
    """How many messages queue 0 of topic `t` has."""
    queue = broker_pb2.TopicQueue(topic="t", queue_id=0)
    bounds = await broker.offsets.QueryBounds(broker_pb2.QueryBoundsRequest(queues=[queue]))
    return int(bounds.bounds[0].max_offset)


class Puller:
    """A pull stream."""

    def __init__(self, broker: Any) -> None:
        self.call = broker.pull.PullStream()

    async def subscribe(self, handle: int, **request: Any) -> None:
        wanted = broker_pb2.SubscribeQueue(
            handle=handle,
            request=broker_pb2.PullRequest(**{"topic": "t", "queue_id": 0, **request}),
            credit_bytes=1 << 30,
        )
        await self.call.write(broker_pb2.PullCommand(subscribe=wanted))

    async def bodies(self, count: int) -> float:
        """Read so many; how long that took in s."""
        began = time.monotonic()
        while count > 0:
            frame = await asyncio.wait_for(self.call.read(), PATIENCE_S)
            count -= len(list(iterate_records(frame.result.records)))
        return time.monotonic() - began

    async def code(self) -> common_pb2.Code:
        frame = await asyncio.wait_for(self.call.read(), PATIENCE_S)
        return frame.result.code  # type: ignore[no-any-return]


def frame_of(*bodies: bytes, sequence: int = 0) -> broker_pb2.SendFrame:
    return broker_pb2.SendFrame(batches=[batch_of("t", 0, *bodies, sequence=sequence)])


# ------------------------------------------------------------------------------------ sending


async def test_a_stream_of_frames_is_slowed_to_the_quota(broker: Any) -> None:
    set_quotas(broker, for_all(send_bytes=100 * KIB))
    began = time.monotonic()
    acks = await broker.exchange(*(frame_of(BODY, sequence=number) for number in range(30)))
    took_s = time.monotonic() - began
    assert [ack.code for ack in acks] == [common_pb2.OK] * 30
    # 300 KiB, of which the first 100 may go at once.
    assert took_s >= 1.9
    assert met(broker, "send_bytes", DELAYED) > 0
    assert met(broker, "send_bytes", REFUSED) == 0


async def test_a_frame_that_would_wait_too_long_is_refused_and_nothing_of_it_is_stored(
    broker: Any,
) -> None:
    set_quotas(broker, for_all(send_bytes=KIB))
    first, second = await broker.exchange(frame_of(BODY), frame_of(BODY, sequence=1))
    assert first.code == common_pb2.OK, "one that is larger than the quota goes when nothing waits"
    assert second.code == common_pb2.QUOTA_EXCEEDED
    assert 8_000 < second.retry_after_ms < 11_000
    assert f"try again in {second.retry_after_ms} ms" in second.message
    assert await stored(broker) == 1


async def test_a_single_send_hears_when_to_come_again_and_our_client_does(broker: Any) -> None:
    set_quotas(broker, for_all(send_requests=2))
    request = broker_pb2.SendRequest(topic="t", body=b"x")
    codes = []
    for _ in range(3):
        try:
            await broker.send.Send(request)
        except grpc.aio.AioRpcError as error:
            codes.append(error.code())
            told = dict(error.trailing_metadata() or ())
            assert 0 < int(told[RETRY_METADATA_KEY]) <= 500
    assert codes == [grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert await stored(broker) == 2
    channels = Channels()
    address = f"127.0.0.1:{broker.port}"
    try:
        for _ in range(3):
            await channels.call(address, SEND, request, timeout_ms=30_000)
        assert await stored(broker) == 5
        set_quotas(broker, for_all(send_bytes=KIB))
        large = broker_pb2.SendRequest(topic="t", body=BODY)
        await channels.call(address, SEND, large)
        with pytest.raises(QuotaExceeded) as refused:
            await channels.call(address, SEND, large, timeout_ms=5_000)
        assert refused.value.retry_after_ms > 5_000
        assert await stored(broker) == 6
    finally:
        await channels.close()


async def test_a_change_of_a_quota_frees_those_who_wait(broker: Any) -> None:
    set_quotas(broker, for_all(send_requests=1))
    stream = broker.send.SendStream()
    for number in range(5):
        await stream.write(frame_of(b"x", sequence=number))
    await stream.read()
    set_quotas(broker)
    began = time.monotonic()
    for _ in range(4):
        await asyncio.wait_for(stream.read(), PATIENCE_S)
    assert time.monotonic() - began < 1.0
    stream.cancel()


# ------------------------------------------------------------------------------------ reading


async def test_a_group_reads_as_fast_as_its_quota_says_and_others_as_fast_as_they_can(
    broker: Any,
) -> None:
    for number in range(30):
        await broker.send_bodies("t", 0, b"%d" % number + BODY)
    set_quotas(broker, of_group("slow", read_bytes=100 * KIB))
    slow, fast = Puller(broker), Puller(broker)
    await slow.subscribe(1, group="slow")
    slowly = asyncio.create_task(slow.bodies(30))
    await slow_has_begun(broker)
    await fast.subscribe(1, group="fast")
    fast_s = await fast.bodies(30)
    assert not slowly.done(), "the fast one waited for the slow one"
    slow_s = await slowly
    assert slow_s >= 1.9 > fast_s
    slow.call.cancel()
    fast.call.cancel()


async def slow_has_begun(broker: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not met(broker, "read_bytes", DELAYED):
            await asyncio.sleep(0.01)


async def messages_out(broker: Any) -> int:
    stats = await broker.admin.GetStats(broker_pb2.GetStatsRequest())
    return int(stats.messages_out)


async def test_polls_that_would_wait_too_long_are_refused_before_they_read(broker: Any) -> None:
    for number in range(4):
        await broker.send_bodies("t", 0, b"%d" % number + BODY)
    set_quotas(broker, of_group("slow", read_bytes=2 * KIB))
    request = broker_pb2.PullRequest(topic="t", queue_id=0, group="slow", max_messages=1)
    got = await broker.pull.Pull(request)
    assert got.record_count == 1
    read = await messages_out(broker)
    with pytest.raises(grpc.aio.AioRpcError, match="group slow may have 2048 read bytes a second"):
        await broker.pull.Pull(request)
    received = await V2(broker.channel).receive("t", "slow")
    assert received.code == v2.TOO_MANY_REQUESTS
    assert "QuotaExceeded: group slow" in received.words
    assert await messages_out(broker) == read
    got = await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=0, group="other"))
    assert got.record_count == 4


async def test_official_clients_hear_too_many_requests_and_go_on_later(broker: Any) -> None:
    set_quotas(broker, for_all(send_requests=1))
    client = V2(broker.channel)
    answers = [await client.send(sent_message("t", message_id=f"ID-{n}")) for n in range(3)]
    codes = [answer.status.code for answer in answers]
    assert codes[0] == v2.OK
    assert v2.TOO_MANY_REQUESTS in codes
    said = next(each.status for each in answers if each.status.code == v2.TOO_MANY_REQUESTS)
    assert "QuotaExceeded" in said.message
    assert "try again in" in said.message
    set_quotas(broker)
    assert (await client.send(sent_message("t", message_id="ID-9"))).status.code == v2.OK


# --------------------------------------------------------------------------- what is counted


async def test_subscriptions_of_one_caller_are_bounded_and_free_when_they_end(broker: Any) -> None:
    set_quotas(broker, for_all(subscriptions=2))
    first, second = Puller(broker), Puller(broker)
    for handle in (1, 2):
        await first.subscribe(handle)
    await first.subscribe(3)
    assert await first.code() == common_pb2.QUOTA_EXCEEDED
    await second.subscribe(1)
    assert await second.code() == common_pb2.QUOTA_EXCEEDED
    unsubscribe = broker_pb2.UnsubscribeQueue(handle=2)
    await first.call.write(broker_pb2.PullCommand(unsubscribe=unsubscribe))
    account = broker.access.quotas.of_address("127.0.0.1")
    await until(lambda: account.subscriptions == 1, "the count")
    await broker.send_bodies("t", 0, b"x")
    await second.subscribe(2)
    assert await second.bodies(1) >= 0
    first.call.cancel()
    second.call.cancel()
    await until(lambda: account.subscriptions == 0, "the count")
    assert met(broker, SUBSCRIPTIONS, REFUSED) == 2


async def test_members_and_official_consumers_count_what_they_subscribe_to(broker: Any) -> None:
    set_quotas(broker, for_all(subscriptions=2))
    account = broker.access.quotas.of_address("127.0.0.1")
    member = broker.groups.Membership()
    join = broker_pb2.Join(
        group="own",
        client_id="c",
        session_timeout_ms=30_000,
        subscriptions=[broker_pb2.Subscription(topic="t")],
    )
    await member.write(broker_pb2.MemberEvent(join=join))
    assert (await asyncio.wait_for(member.read(), PATIENCE_S)).HasField("joined")

    async def told(*topics: str) -> service_pb2.TelemetryCommand:
        stream = V2(broker.channel).telemetry()
        entries = [v2.SubscriptionEntry(topic=v2.Resource(name=topic)) for topic in topics]
        settings = v2.Settings(
            client_type=v2.SIMPLE_CONSUMER,
            subscription=v2.Subscription(group=v2.Resource(name="g"), subscriptions=entries),
        )
        await stream.write(service_pb2.TelemetryCommand(settings=settings))
        answer: service_pb2.TelemetryCommand = await asyncio.wait_for(stream.read(), PATIENCE_S)
        stream.cancel()
        return answer

    refused = await told("t", "u")
    assert refused.status.code == v2.TOO_MANY_REQUESTS
    assert "2 subscriptions" in refused.status.message
    assert (await told("t")).HasField("settings")
    member.cancel()
    await until(lambda: account.subscriptions == 0, "the count")
    assert (await told("t", "u")).HasField("settings")


async def test_new_groups_of_one_caller_are_bounded_and_known_ones_go_on(broker: Any) -> None:
    set_quotas(broker, for_all(groups_created=1))

    async def join(group: str) -> Any:
        call = broker.groups.Membership()
        join = broker_pb2.Join(group=group, client_id="c", session_timeout_ms=30_000)
        await call.write(broker_pb2.MemberEvent(join=join))
        event = await asyncio.wait_for(call.read(), PATIENCE_S)
        call.cancel()
        return event

    assert (await join("first")).HasField("joined")
    refused = await join("second")
    assert refused.failed.code == common_pb2.QUOTA_EXCEEDED
    assert refused.failed.retry_after_ms > 0
    assert "1 groups created an hour" in refused.failed.message
    assert met(broker, GROUPS_CREATED, REFUSED) == 1
    assert "second" not in broker.opened.groups


async def test_connections_of_one_caller_are_bounded_and_free_when_they_end(broker: Any) -> None:
    address = f"127.0.0.1:{broker.port}"
    others = [Channels(), Channels()]
    await broker.admin.GetStats(broker_pb2.GetStatsRequest())
    set_quotas(broker, for_all(connections=2))
    request = broker_pb2.SendRequest(topic="t", body=b"x")
    try:
        await others[0].call(address, SEND, request)
        with pytest.raises(QuotaExceeded, match="2 connections"):
            await others[1].call(address, SEND, request, timeout_ms=500)
        await others[0].close()
        account = broker.access.quotas.of_address("127.0.0.1")
        await until(lambda: len(account.connections) == 1, "the connections")
        await others[1].call(address, SEND, request)
    finally:
        for each in others:
            await each.close()
