"""Wrong requests: each has its typed error, says what to do, and stores nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import grpc
import pytest

from aerobee.runtime import errors
from aerobee.store_format.record import HostAddress
from aerobee.store_format.record_encode import encode_record
from aerobee.v1 import broker_pb2, common_pb2
from tests.faults.serving import MIB, Client, batch_of, refusal

Batch = broker_pb2.RecordBatch
INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND


@dataclass(frozen=True)
class Refused:
    """A request that must be refused, with which error, and what its message must say."""

    what: str
    request: Callable[[], object]
    error: type[errors.MqError]
    words: tuple[str, ...]
    status: grpc.StatusCode = INVALID

    def __str__(self) -> str:
        return self.what

    def check(self, error: errors.MqError) -> None:
        assert type(error) is self.error, repr(error)
        for word in self.words:
            assert word in str(error), str(error)


def sized(batch: Batch, *sizes: int) -> Batch:
    batch.ClearField("record_sizes")
    batch.record_sizes.extend(sizes)
    return batch


def changed(batch: Batch, at: int, value: bytes) -> Batch:
    batch.records = batch.records[:at] + value + batch.records[at + len(value) :]
    return batch


def named(batch: Batch, topic: str) -> Batch:
    batch.topic = topic
    return batch


def with_properties(size: int, *, count: int = 1) -> Batch:
    """Records whose lengths all agree, with properties of a size that the format cannot hold."""
    whole = batch_of("t", 0, b"x")
    record = bytearray(whole.records) + b"a\x01" + b"v" * (size - 3) + b"\x02"
    record[:4] = len(record).to_bytes(4, "big")
    at = len(whole.records) - 2
    record[at : at + 2] = size.to_bytes(2, "big")
    return Batch(topic="t", records=bytes(record) * count, record_sizes=[len(record)] * count)


def for_an_ipv6_broker() -> Batch:
    record = encode_record(
        topic=b"t",
        body=b"x",
        properties=b"",
        born_timestamp_ms=1,
        born_host=HostAddress(bytes(4), 1),
        store_host_ipv6=True,
    )
    return Batch(topic="t", records=record, record_sizes=[len(record)])


def joined(*batches: Batch) -> Batch:
    return Batch(
        topic="t",
        records=b"".join(batch.records for batch in batches),
        record_sizes=[size for batch in batches for size in batch.record_sizes],
    )


MANY = [b"body %d" % number for number in range(100)]
"""So many that the batch is checked with arrays."""

BATCHES = [
    Refused(
        "unknown topic",
        lambda: batch_of("nowhere", 0, b"x"),
        errors.TopicNotFound,
        ("nowhere", "create it", "ask the route"),
    ),
    Refused("no topic", lambda: named(batch_of("t", 0, b"x"), ""), errors.IllegalName, ("1 to",)),
    Refused(
        "topic that leaves its folder",
        lambda: named(batch_of("t", 0, b"x"), "../../etc"),
        errors.IllegalName,
        ("../../etc", "use letters, digits"),
    ),
    Refused(
        "topic with a zero byte",
        lambda: named(batch_of("t", 0, b"x"), "a\0b"),
        errors.IllegalName,
        ("use letters, digits",),
    ),
    Refused(
        "topic of 128 characters",
        lambda: batch_of("t" * 128, 0, b"x"),
        errors.IllegalName,
        ("128 characters", "at most 127"),
    ),
    Refused(
        "topic of the broker itself",
        lambda: batch_of("SCHEDULE_TOPIC_XXXX", 0, b"x"),
        errors.TopicNotFound,
        ("SCHEDULE_TOPIC_XXXX",),
    ),
    Refused(
        "topic for reading only",
        lambda: batch_of("frozen", 0, b"x"),
        errors.NotWritableTopic,
        ("perm 4", "update the topic"),
    ),
    Refused(
        "queue id beyond the last",
        lambda: batch_of("t", 4, b"x"),
        errors.QueueNotFound,
        ("queue 4", "queues 0 to 3"),
    ),
    Refused(
        "queue id below 0",
        lambda: batch_of("t", -1, b"x"),
        errors.QueueNotFound,
        ("queue -1", "queues 0 to 3"),
    ),
    Refused(
        "largest queue id",
        lambda: batch_of("t", 2**31 - 1, b"x"),
        errors.QueueNotFound,
        ("queues 0 to 3",),
    ),
    Refused("no records", lambda: Batch(topic="t"), errors.MessageIllegal, ("at least one",)),
    Refused(
        "empty body",
        lambda: batch_of("t", 0, b""),
        errors.MessageIllegal,
        ("no body", "at least one byte"),
    ),
    Refused(
        "one empty body among many",
        lambda: batch_of("t", 0, *MANY, b"", *MANY),
        errors.MessageIllegal,
        ("record 100", "no body", "at least one byte"),
    ),
    Refused(
        "body above 4 MiB",
        lambda: batch_of("t", 0, bytes(4 * MIB + 1)),
        errors.MessageTooLarge,
        (str(4 * MIB + 1), f"limit of {4 * MIB}", "send a smaller one"),
    ),
    Refused(
        "batch above its limit",
        lambda: batch_of("t", 0, *([bytes(MIB)] * 5)),
        errors.MessageTooLarge,
        ("exceed the limit", "send less"),
    ),
    Refused(
        "properties of 32,768 bytes",
        lambda: with_properties(32_768),
        errors.PropertiesTooLarge,
        ("32768", "limit of 32767", "into the body"),
    ),
    Refused(
        "properties of 65,535 bytes in each of many",
        lambda: with_properties(65_535, count=40),
        errors.PropertiesTooLarge,
        ("65535", "into the body"),
    ),
    Refused(
        "no sizes",
        lambda: sized(batch_of("t", 0, b"x")),
        errors.MessageIllegal,
        ("at least one",),
    ),
    Refused(
        "sizes below the sum",
        lambda: sized(batch_of("t", 0, b"x"), 20),
        errors.MessageIllegal,
        ("do not divide", "size of each record"),
    ),
    Refused(
        "sizes above the sum",
        lambda: sized(batch_of("t", 0, b"x"), 9_999),
        errors.MessageIllegal,
        ("do not divide", "size of each record"),
    ),
    Refused(
        "sizes that wrap around",
        lambda: sized(batch_of("t", 0, b"x"), 2**32 - 1, 2**32 - 1),
        errors.MessageIllegal,
        ("do not divide",),
    ),
    Refused(
        "a size of 0",
        lambda: sized(batch_of("t", 0, b"x"), 0, len(batch_of("t", 0, b"x").records)),
        errors.MessageIllegal,
        ("do not divide",),
    ),
    Refused(
        "sizes that add up and cut records elsewhere",
        lambda: sized(
            batch_of("t", 0, b"x" * 9, b"y" * 9),
            batch_of("t", 0, b"x" * 9).record_sizes[0] + 5,
            batch_of("t", 0, b"y" * 9).record_sizes[0] - 5,
        ),
        errors.MessageIllegal,
        ("record 0", "encode the batch again"),
    ),
    Refused(
        "wrong magic",
        lambda: changed(batch_of("t", 0, b"x"), 4, b"\xde\xad\xbe\xef"),
        errors.MessageIllegal,
        ("0xdeadbeef", "encode the batch again"),
    ),
    Refused(
        "magic of the blank record",
        lambda: changed(batch_of("t", 0, b"x"), 4, (-875286124 & 0xFFFFFFFF).to_bytes(4, "big")),
        errors.MessageIllegal,
        ("encode the batch again",),
    ),
    Refused(
        "wrong magic in the last of many",
        lambda: joined(
            batch_of("t", 0, *MANY), changed(batch_of("t", 0, b"x"), 4, b"\xde\xad\xbe\xef")
        ),
        errors.MessageIllegal,
        ("record 100", "0xdeadbeef", "encode the batch again"),
    ),
    Refused(
        "negative body length",
        lambda: changed(batch_of("t", 0, b"x"), 84, b"\xff\xff\xff\xff"),
        errors.MessageIllegal,
        ("body length -1", "encode the batch again"),
    ),
    Refused(
        "body length beyond the batch",
        lambda: changed(batch_of("t", 0, b"x"), 84, b"\x7f\xff\xff\xff"),
        errors.MessageIllegal,
        ("does not fit", "encode the batch again"),
    ),
    Refused(
        "record of another topic",
        lambda: named(batch_of("u", 0, b"x"), "t"),
        errors.MessageIllegal,
        ("topic b'u'", "one topic"),
    ),
    Refused(
        "record for an IPv6 broker",
        for_an_ipv6_broker,
        errors.MessageIllegal,
        ("IPv4", "ask the route again"),
    ),
    Refused(
        "corrupt body",
        lambda: changed(batch_of("t", 0, b"x" * 50), 100, b"?"),
        errors.CorruptBody,
        ("record 0", "CRC", "send it again"),
    ),
    Refused(
        "corrupt CRC",
        lambda: changed(batch_of("t", 0, b"x" * 50), 8, b"\x12\x34\x56\x78"),
        errors.CorruptBody,
        ("record 0", "CRC", "send it again"),
    ),
    Refused(
        "one corrupt body among many",
        lambda: joined(
            batch_of("t", 0, *MANY),
            changed(batch_of("t", 0, b"x" * 50), 100, b"?"),
            batch_of("t", 0, *MANY),
        ),
        errors.CorruptBody,
        ("record 100", "CRC", "send it again"),
    ),
    Refused(
        "garbage of a record's length",
        lambda: Batch(topic="t", records=bytes(range(256)) * 2, record_sizes=[512]),
        errors.MessageIllegal,
        ("encode the batch again",),
    ),
    Refused(
        "garbage as many records",
        lambda: Batch(topic="t", records=bytes(range(256)) * 50, record_sizes=[128] * 100),
        errors.MessageIllegal,
        ("record 0", "encode the batch again"),
    ),
]


@pytest.mark.parametrize("refused", BATCHES, ids=str)
async def test_a_wrong_batch_is_refused_before_it_is_stored(
    client: Client, refused: Refused
) -> None:
    before = await client.stats()
    batch = refused.request()
    assert isinstance(batch, Batch)
    batch.sequence = 77
    good = [batch_of("u", 1, b"before", sequence=1), batch_of("u", 1, b"after", sequence=2)]
    (ack,) = await client.exchange(batch)
    refused.check(errors.error_from_code(ack.code, ack.message))
    assert ack.sequence == 77
    assert (ack.store_timestamp_ms, ack.durability) == (0, broker_pb2.DURABILITY_UNSPECIFIED)
    after = await client.stats()
    assert after.log_appended_end == before.log_appended_end
    assert after.messages_in == before.messages_in
    assert after.refused == before.refused + 1
    # The same in the middle of others: these are stored, one after the other, and nothing else.
    first, wrong, second = await client.exchange(good[0], batch, good[1])
    assert (first.code, second.code) == (common_pb2.OK, common_pb2.OK)
    assert (wrong.code, wrong.message) == (ack.code, ack.message)
    assert second.base_queue_offset == first.base_queue_offset + 1
    stored = sum(len(one.records) for one in good)
    assert await client.log_end() == after.log_appended_end + stored


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
    Refused("lease of nobody", pull(lease_epoch=7), errors.InvalidArgument, ("needs the group",)),
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
        "filter of a kind that is not served",
        pull(filter=broker_pb2.Filter(type=broker_pb2.SQL92, expression="a > 1")),
        errors.FilterIllegal,
        ("tag",),
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
    refused.check(errors.error_from_code(frames[1].code, frames[1].message))
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
    error: type[errors.MqError],
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
        found = errors.error_from_code(status.code, status.message)
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
    assert "neither members nor committed offsets" in str(error)
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
    assert "ask for at most 65536" in str(error)


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        ([broker_pb2.PullCommand()], "a pull command without content"),
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
