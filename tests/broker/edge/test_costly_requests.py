"""No request to a broker costs the others more than its limits: time of the loop, and memory."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc
import pytest

from aerobee.broker.edge.own.request_limits import broker_request_limits
from aerobee.runtime.errors import InvalidArgument
from aerobee.v1 import audit_pb2, broker_pb2, common_pb2, replication_pb2
from tests.support.costly_requests import methods_of, places
from tests.support.loop_price import watched
from tests.support.refusals import (
    ANSWERED_STEP_S_MAX,
    MEMORY_BYTES_MAX,
    assert_all_refused,
    refusal_of,
)

FILES = (broker_pb2.DESCRIPTOR, audit_pb2.DESCRIPTOR, replication_pb2.DESCRIPTOR)


@pytest.mark.thorough
async def test_what_goes_beyond_a_limit_is_refused_and_nobody_waits(broker: Any) -> None:
    found = places(methods_of(*FILES))
    await assert_all_refused(broker.channel, broker_request_limits(), found)
    ack = await broker.send_bodies("t", 0, b"as before")
    assert ack.code == common_pb2.OK


async def test_a_batch_of_a_small_frame_with_an_endless_topic_is_refused_by_itself(
    broker: Any,
) -> None:
    """Small frames are not looked into: each batch is."""
    frame = broker_pb2.SendFrame(
        batches=[broker_pb2.RecordBatch(sequence=7, topic="x" * 30_000, records=b"x")]
    )
    (ack,) = await broker.exchange(frame)
    assert (ack.sequence, ack.code) == (7, common_pb2.ILLEGAL_NAME)
    assert len(ack.message) < 200


async def test_bytes_that_are_no_request_are_the_client_s_mistake(broker: Any) -> None:
    for place in places(methods_of(broker_pb2.DESCRIPTOR, audit_pb2.DESCRIPTOR)):
        error = await refusal_of(broker.channel, place, b"\xff" * 10)
        assert type(error) is InvalidArgument, f"{place}: {error!r}"


async def test_health_and_reflection_have_limits_too(broker: Any) -> None:
    channel = broker.channel
    garbage, long = b"\xff" * 10, b"\x0a\xff\x1f" + b"x" * 4_095
    for request in (garbage, long):
        for call in (
            channel.unary_unary("/grpc.health.v1.Health/Check")(request),
            channel.unary_stream("/grpc.health.v1.Health/Watch")(request).read(),
            channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(
                iter([request])
            ).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


QUEUES = 65_536


def in_bytes(request: Any) -> bytes:
    return request.SerializeToString()  # type: ignore[no-any-return]


LARGEST: dict[str, tuple[str, Any]] = {
    "CommitOffsets": (
        "OffsetService/CommitOffsets",
        broker_pb2.CommitOffsetsRequest(
            group="g",
            offsets=[broker_pb2.QueueOffset(topic="nowhere", queue_id=i) for i in range(QUEUES)],
        ),
    ),
    "QueryOffsets": (
        "OffsetService/QueryOffsets",
        broker_pb2.QueryOffsetsRequest(
            group="g", queues=[broker_pb2.TopicQueue(topic="t", queue_id=i) for i in range(QUEUES)]
        ),
    ),
    "QueryBounds": (
        "OffsetService/QueryBounds",
        broker_pb2.QueryBoundsRequest(
            queues=[
                broker_pb2.TopicQueue(topic="%RETRY%" + "x" * 110, queue_id=i)
                for i in range(QUEUES)
            ]
        ),
    ),
    "SendStream": (
        "SendService/SendStream",
        broker_pb2.SendFrame(
            batches=[broker_pb2.RecordBatch(topic="nowhere", queue_id=i) for i in range(16_384)]
        ),
    ),
    "Membership": (
        "GroupService/Membership",
        broker_pb2.MemberEvent(
            join=broker_pb2.Join(
                group="g",
                client_id="c",
                held=[broker_pb2.HeldLease(topic="t", queue_id=i) for i in range(QUEUES)],
            )
        ),
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", LARGEST)
async def test_a_request_at_its_limits_is_answered_in_turns_with_others(
    broker: Any, name: str
) -> None:
    """What a client may ask for at once takes long: the others do not wait for the end of it."""
    path, request = LARGEST[name]
    data = in_bytes(request)
    async with watched() as price:
        if name in ("SendStream", "Membership"):
            call = broker.channel.stream_stream(f"/aerobee.v1.{path}")()
            await call.write(data)
            assert await call.read()
            call.cancel()
        else:
            assert await broker.channel.unary_unary(f"/aerobee.v1.{path}")(data)
    assert price.longest_step_s < ANSWERED_STEP_S_MAX
    assert price.memory_bytes < MEMORY_BYTES_MAX


async def test_fat_members_are_refused_before_their_group_s_view_is_too_long(
    broker: Any,
) -> None:
    """Each allowed by itself, together they once made views that no message could carry."""

    async def join(number: int, subscriptions: int) -> Any:
        call = broker.groups.Membership()
        wanted = [
            broker_pb2.Subscription(
                topic=f"t{index}", filter=broker_pb2.Filter(expression="x" * 15_000)
            )
            for index in range(subscriptions)
        ]
        await call.write(
            broker_pb2.MemberEvent(
                join=broker_pb2.Join(
                    group="g",
                    client_id=f"c{number}",
                    instance="i",
                    subscriptions=wanted,
                    session_timeout_ms=60_000,
                )
            )
        )
        return call, await call.read()

    _, refused = await join(0, 5)
    assert refused.failed.code == common_pb2.INVALID_ARGUMENT
    assert "5 subscriptions take" in refused.failed.message
    calls = []
    for number in range(1, 100):
        call, answer = await join(number, 4)
        if answer.HasField("failed"):
            break
        calls.append(call)
    assert answer.failed.code == common_pb2.BUSY, answer
    assert "use fewer members or subscriptions" in answer.failed.message
    assert len(calls) > 10
    described = await broker.groups.DescribeGroup(broker_pb2.DescribeGroupRequest(group="g"))
    assert len(described.members) == len(calls)
    assert described.ByteSize() < 2 * 1024 * 1024
    leaving = calls.pop()
    await leaving.write(broker_pb2.MemberEvent(leave=broker_pb2.Leave()))
    while await leaving.read() is not grpc.aio.EOF:
        pass
    call, answer = await join(200, 1)
    assert answer.HasField("joined"), "who leaves makes room"


async def test_a_stream_with_an_answer_under_way_ends_with_its_error_all_the_same(
    broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The first answer is given up while gRPC sends it; the error must still reach the client."""
    wanted = broker_pb2.SubscribeQueue(handle=1, request=broker_pb2.PullRequest(topic="nowhere"))
    refused = in_bytes(broker_pb2.PullCommand(subscribe=wanted))

    async def ends() -> grpc.StatusCode:
        call = broker.channel.stream_stream("/aerobee.v1.PullService/PullStream")(
            iter([refused, b"\xff" * 9]), timeout=20
        )
        with contextlib.suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        return await call.code()  # type: ignore[no-any-return]

    for _ in range(5):
        codes = await asyncio.gather(*(ends() for _ in range(100)))
        assert set(codes) == {grpc.StatusCode.INVALID_ARGUMENT}
    # asyncio's own are of gRPC's poller in this process, which the test's client has as well.
    errors = [line for line in caplog.records if line.levelname == "ERROR"]
    assert not [line for line in errors if line.name != "asyncio"]
