"""Wrong requests: each has its typed error, says what to do, and stores nothing."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest

from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2
from tests.faults.refused import INVALID, NOT_FOUND, Refused
from tests.faults.serving import MIB, Client, refusal


def request(**changes: object) -> Callable[[], broker_pb2.SendRequest]:
    return lambda: broker_pb2.SendRequest(**{"topic": "t", "body": b"x", **changes})  # type: ignore[arg-type]


SENDS = [
    Refused(
        "unknown topic",
        request(topic="nowhere"),
        errors.TopicNotFound,
        ("nowhere", "create it"),
        NOT_FOUND,
    ),
    Refused("no topic", request(topic=""), errors.IllegalName, ("give it 1 to 127",)),
    Refused("illegal topic", request(topic="no/pe"), errors.IllegalName, ("use letters, digits",)),
    Refused("long topic", request(topic="t" * 128), errors.IllegalName, ("at most 127",)),
    Refused(
        "topic for reading only",
        request(topic="frozen"),
        errors.NotWritableTopic,
        ("update the topic",),
        grpc.StatusCode.PERMISSION_DENIED,
    ),
    Refused(
        "queue id beyond the last",
        request(queue_id=4),
        errors.QueueNotFound,
        ("queues 0 to 3",),
        NOT_FOUND,
    ),
    Refused(
        "queue id below -1",
        request(queue_id=-2),
        errors.QueueNotFound,
        ("queues 0 to 3",),
        NOT_FOUND,
    ),
    Refused("empty body", request(body=b""), errors.MessageIllegal, ("at least one byte",)),
    Refused(
        "body above 4 MiB",
        request(body=bytes(4 * MIB + 1)),
        errors.MessageTooLarge,
        ("send a smaller one",),
    ),
    Refused(
        "properties too large",
        request(properties={"a": "v" * 32_767}),
        errors.PropertiesTooLarge,
        ("32767", "into the body"),
    ),
    Refused(
        "property with a separator",
        request(properties={"a": "x\x02y"}),
        errors.MessageIllegal,
        ("property",),
    ),
    Refused("key with a space", request(keys=["a b"]), errors.InvalidArgument, ("spaces",)),
]


@pytest.mark.parametrize("refused", SENDS, ids=str)
async def test_a_wrong_single_send_fails_with_its_status_and_stores_nothing(
    client: Client, refused: Refused
) -> None:
    before = await client.log_end()
    status, error = await refusal(client.send_service.Send(refused.request()))
    assert status is refused.status
    refused.check(error)
    assert await client.log_end() == before


def pull(**changes: object) -> Callable[[], broker_pb2.PullRequest]:
    return lambda: broker_pb2.PullRequest(**{"topic": "t", **changes})  # type: ignore[arg-type]


PULLS = [
    Refused(
        "unknown topic",
        pull(topic="nowhere"),
        errors.TopicNotFound,
        ("nowhere", "create it"),
        NOT_FOUND,
    ),
    Refused("illegal topic", pull(topic="no pe"), errors.IllegalName, ("use letters, digits",)),
    Refused(
        "topic for writing only",
        pull(topic="closed"),
        errors.NotReadableTopic,
        ("perm 2", "update the topic"),
        grpc.StatusCode.PERMISSION_DENIED,
    ),
    Refused(
        "queue id beyond the last",
        pull(queue_id=4),
        errors.QueueNotFound,
        ("queues 0 to 3",),
        NOT_FOUND,
    ),
    Refused(
        "queue id below 0", pull(queue_id=-1), errors.QueueNotFound, ("queues 0 to 3",), NOT_FOUND
    ),
    Refused("illegal group", pull(group="no pe"), errors.IllegalName, ("use letters, digits",)),
    Refused("long group", pull(group="g" * 121), errors.IllegalName, ("at most 120",)),
    Refused("lease of nobody", pull(lease_epoch=7), errors.InvalidArgument, ("needs its group",)),
    Refused(
        "lease that was never granted",
        pull(group="g", lease_epoch=7),
        errors.LeaseExpired,
        ("acquire the queue again",),
        grpc.StatusCode.ABORTED,
    ),
    Refused(
        "filter without a tag",
        pull(filter=broker_pb2.Filter(expression="||")),
        errors.FilterIllegal,
        ("write 'a || b'",),
    ),
    Refused(
        "filter in SQL that is none",
        pull(filter=broker_pb2.Filter(type=broker_pb2.SQL92, expression="a >")),
        errors.FilterIllegal,
        ("at its end", "expected a property's name"),
    ),
    Refused(
        "filter of a kind that is not served",
        pull(filter=broker_pb2.Filter(type=7)),  # type: ignore[arg-type]
        errors.FilterIllegal,
        ("TAG or SQL92",),
    ),
]


@pytest.mark.parametrize("refused", PULLS, ids=str)
async def test_a_wrong_pull_fails_with_its_status(client: Client, refused: Refused) -> None:
    wanted = refused.request()
    assert isinstance(wanted, broker_pb2.PullRequest)
    status, error = await refusal(client.pull_service.Pull(wanted))
    assert status is refused.status
    refused.check(error)


@pytest.mark.parametrize("refused", PULLS, ids=str)
async def test_a_wrong_subscription_ends_its_handle_and_not_the_stream(
    client: Client, refused: Refused
) -> None:
    assert (await client.send("t", 3, b"for the good one")).code == common_pb2.OK
    wanted = refused.request()
    assert isinstance(wanted, broker_pb2.PullRequest)
    call = client.pull_service.PullStream(timeout=10)
    for handle, subscribed in (
        (1, wanted),
        (2, broker_pb2.PullRequest(topic="t", queue_id=3)),
    ):
        await call.write(
            broker_pb2.PullCommand(
                subscribe=broker_pb2.SubscribeQueue(
                    handle=handle, request=subscribed, credit_bytes=MIB
                )
            )
        )
    frames = {frame.handle: frame.result for frame in (await call.read(), await call.read())}
    refused.check(error_from_code(frames[1].code, frames[1].message))
    assert frames[2].code == common_pb2.OK
    assert frames[2].record_count > 0
    call.cancel()


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [
        (-1, common_pb2.OFFSET_TOO_SMALL, 0),
        (-(2**63), common_pb2.OFFSET_TOO_SMALL, 0),
        (3, common_pb2.NO_NEW_MESSAGE, 3),
        (4, common_pb2.OFFSET_TOO_LARGE, 3),
        (2**63 - 1, common_pb2.OFFSET_TOO_LARGE, 3),
    ],
)
async def test_an_offset_out_of_range_is_answered_with_where_to_go_on(
    client: Client, offset: int, code: int, next_offset: int
) -> None:
    if not await client.records("u", 2):
        await client.send("u", 2, b"a", b"b", b"c")
    result = await client.pull("u", 2, offset)
    assert (result.code, result.next_offset) == (code, next_offset)
    assert (result.min_offset, result.max_offset, result.records) == (0, 3, b"")


@pytest.mark.parametrize("offset", [1, 5, 2**63 - 1])
async def test_an_offset_in_an_empty_queue_leads_to_its_beginning(
    client: Client, offset: int
) -> None:
    result = await client.pull("frozen", 0, offset)
    assert (result.code, result.next_offset) == (common_pb2.OFFSET_TOO_LARGE, 0)


@pytest.mark.parametrize(
    ("topic", "queue_id", "offset", "error", "words"),
    [
        ("nowhere", 0, 0, errors.TopicNotFound, ("create it",)),
        ("no pe", 0, 0, errors.IllegalName, ("use letters, digits",)),
        ("t", 4, 0, errors.QueueNotFound, ("queues 0 to 3",)),
        ("t", -1, 0, errors.QueueNotFound, ("queues 0 to 3",)),
        ("t", 2, -1, errors.InvalidArgument, ("offset -1", "out of range")),
        ("t", 2, 2**62, errors.InvalidArgument, ("out of range", "ends at 0")),
    ],
)
async def test_a_wrong_commit_or_reset_changes_nothing(
    client: Client,
    topic: str,
    queue_id: int,
    offset: int,
    error: type[errors.AerobeeError],
    words: tuple[str, ...],
) -> None:
    reset = await client.offsets.ResetOffsets(
        broker_pb2.ResetOffsetsRequest(
            group="committers",
            offsets=[broker_pb2.QueueOffset(topic=topic, queue_id=queue_id, offset=offset)],
        )
    )
    for status in (
        await client.commit("committers", topic, queue_id, offset),
        reset.results[0],
    ):
        found = error_from_code(status.code, status.message)
        assert type(found) is error, status
        assert all(word in status.message for word in words), status.message
    kept = await client.offsets.QueryOffsets(broker_pb2.QueryOffsetsRequest(group="committers"))
    assert list(kept.offsets) == []


async def test_unknown_and_illegal_groups_are_told_apart(client: Client) -> None:
    status, error = await refusal(
        client.groups.DescribeGroup(broker_pb2.DescribeGroupRequest(group="nobody"))
    )
    assert (status, type(error)) == (NOT_FOUND, errors.GroupNotFound)
    assert "nobody" in str(error)
    assert "neither members, committed offsets nor settings" in str(error)
    asked: list[tuple[str, object]] = []
    for group in ("", "no pe", "g" * 121):
        for call in (
            client.groups.DescribeGroup(broker_pb2.DescribeGroupRequest(group=group)),
            client.offsets.CommitOffsets(broker_pb2.CommitOffsetsRequest(group=group)),
            client.offsets.QueryOffsets(broker_pb2.QueryOffsetsRequest(group=group)),
            client.offsets.ResetOffsets(broker_pb2.ResetOffsetsRequest(group=group)),
        ):
            status, error = await refusal(call)
            asked.append((group, status))
            assert (status, type(error)) == (INVALID, errors.IllegalName)
            assert "group name" in str(error)
    assert len(asked) == 12
    assert await client.committed("nobody", "t", 0) == -1


async def test_bounds_and_times_of_unknown_queues_are_told_one_by_one(client: Client) -> None:
    queues = [
        broker_pb2.TopicQueue(topic=topic, queue_id=queue_id)
        for topic, queue_id in (("t", 0), ("nowhere", 0), ("t", 9), ("no pe", 0))
    ]
    response = await client.offsets.QueryBounds(broker_pb2.QueryBoundsRequest(queues=queues))
    assert [bounds.status.code for bounds in response.bounds] == [
        common_pb2.OK,
        common_pb2.TOPIC_NOT_FOUND,
        common_pb2.QUEUE_NOT_FOUND,
        common_pb2.ILLEGAL_NAME,
    ]
    found = await client.offsets.SearchByTimestamp(
        broker_pb2.SearchByTimestampRequest(queues=queues[:3], timestamp_ms=1)
    )
    assert list(found.offsets)[1:] == [-1, -1]
    status, error = await refusal(
        client.offsets.QueryBounds(broker_pb2.QueryBoundsRequest(queues=[queues[0]] * 65_537))
    )
    assert (status, type(error)) == (INVALID, errors.InvalidArgument)
    assert "at most 65536" in str(error)


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        ([broker_pb2.PullCommand()], "a pull command is empty"),
        (
            [
                broker_pb2.PullCommand(
                    subscribe=broker_pb2.SubscribeQueue(
                        handle=1, request=broker_pb2.PullRequest(topic="frozen", queue_id=queue_id)
                    )
                )
                for queue_id in (1, 2)
            ],
            "handle 1 is in use; unsubscribe it first",
        ),
    ],
    ids=["empty command", "handle in use"],
)
async def test_nonsense_on_a_pull_stream_ends_it_with_a_typed_error(
    client: Client, commands: list[broker_pb2.PullCommand], words: str
) -> None:
    call = client.pull_service.PullStream(timeout=10)
    for command in commands:
        await call.write(command)
    status, error = await refusal(call.read())
    assert (status, type(error)) == (INVALID, errors.InvalidArgument)
    assert words in str(error)
