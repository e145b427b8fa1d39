"""Options, offsets and ranges of the message source: what is asked for, shared out and refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.offsets import (
    EARLIEST,
    LATEST,
    beginning_of,
    from_document,
    parse_offsets,
    to_document,
    with_beginning,
)
from aerobee.offset_audit.sources.messages.options import MessageOptions, parse_options
from aerobee.offset_audit.sources.messages.place import Bounds, clip
from aerobee.offset_audit.sources.messages.ranges import (
    OffsetRange,
    between,
    divide,
    pack,
    share_limit,
)
from aerobee.runtime.errors import InvalidArgument

QUEUES = [MessageQueue("orders", f"b{n // 3}", n % 3) for n in range(9)]
OFFSETS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 1000))


def options(is_streaming: bool | None = False, **given: Any) -> MessageOptions:
    named = {"nameservers": "127.0.0.1:1", "topic": "orders", **given}
    texts = {name: str(value) for name, value in named.items() if value is not None}
    return parse_options(texts, is_streaming=is_streaming)


# ---------------------------------------------------------------------------------- offsets


@given(OFFSETS, OFFSETS)
def test_offsets_come_back_from_the_checkpoint_as_they_were(
    end: dict[MessageQueue, int], beginning: dict[MessageQueue, int]
) -> None:
    assert from_document(to_document(end)) == end
    assert beginning_of(to_document(end)) is None
    first = with_beginning(end, beginning)
    assert from_document(first) == end
    assert beginning_of(first) == beginning


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "[]",
        '{"t": 1}',
        '{"t": {"b": 1}}',
        '{"t": {"b": {"x": 1}}}',
        '{"t":{"b":{"0":"1"}}}',
    ],
)
def test_offsets_of_another_shape_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"startingOffsets is .* topic -> broker -> queue"):
        parse_offsets(text, "startingOffsets")


# ---------------------------------------------------------------------------------- options


def test_options_are_found_whatever_their_case_and_default_as_kafkas() -> None:
    batch, stream = options(), options(is_streaming=True)
    assert (batch.start.offset, batch.end.offset) == (EARLIEST, LATEST)
    assert stream.start.offset == LATEST
    assert batch.fail_on_data_loss
    assert options(failondataloss="FALSE", MAXOFFSETSPERTRIGGER=7).messages_per_trigger_max == 7
    assert options(subscribe="b, a", topic=None).topics.names == ("a", "b")
    assert options(columns="body, tags").columns.names == ("body", "tags")
    assert "properties" not in options(includeProperties="false").columns.names


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffset": "earliest"}, "'startingOffset': did you mean startingOffsets"),
        ({"zzz": "1"}, "has no option 'zzz': it has nameservers, "),
        ({"topic": None}, "exactly one of"),
        ({"subscribe": "x"}, "exactly one of"),
        ({"path": "/x"}, "either nameservers"),
        ({"nameservers": None}, "either nameservers"),
        ({"nameservers": "nowhere"}, "not host:port"),
        ({"startingOffsets": "first"}, "topic -> broker -> queue"),
        ({"startingOffsets": '{"orders": {"b": {"0": -3}}}'}, "-1, the latest, and -2"),
        ({"startingOffsets": "latest"}, "reads nothing"),
        ({"endingOffsets": "earliest"}, "reads nothing"),
        ({"startingTimestamp": "noon"}, "not a whole number"),
        ({"maxOffsetsPerTrigger": "0"}, "whole number of 1 or more"),
        ({"failOnDataLoss": "yes"}, "neither true nor false"),
        ({"subscribePattern": "(", "topic": None}, "not a regular expression"),
        ({"assign": '{"orders": [1]}', "topic": None}, "topic -> broker -> queues"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, "neither error nor latest"),
        ({"columns": "body,offset"}, "names 'offset' which does not exist; columns are: topic, "),
        ({"columns": "body,body"}, "names 'body' twice"),
        ({"columns": "body", "includeBody": "false"}, "names only columns that includeBody"),
    ],
)
def test_an_option_that_cannot_work_is_refused_and_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        options(**given)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidArgument, match="no end"):
        options(is_streaming=True, endingOffsets="latest")


def test_a_pattern_finds_no_system_topics_nor_those_of_groups_unless_it_says_so() -> None:
    topics = options(subscribePattern=".*", topic=None).topics
    names = ["orders", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x", "%RETRY%g", "%DLQ%g"]
    assert [name for name in names if topics.matches(name)] == ["orders"]
    retries = options(subscribePattern="%RETRY%.*", topic=None).topics
    assert [name for name in names if retries.matches(name)] == ["%RETRY%g"]


# ---------------------------------------------------------------------------------- ranges


@given(OFFSETS, st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 50)), st.integers(1, 200))
def test_a_limit_is_shared_in_proportion_and_never_exceeded(
    begins: dict[MessageQueue, int], counts: dict[MessageQueue, int], limit: int
) -> None:
    ends = {queue: begins.get(queue, 0) + counts.get(queue, 0) for queue in QUEUES}
    limited = share_limit(begins, ends, limit)
    taken = {queue: limited[queue] - begins.get(queue, 0) for queue in QUEUES}
    waiting = {queue: ends[queue] - begins.get(queue, 0) for queue in QUEUES}
    total = sum(waiting.values())
    assert sum(taken.values()) == min(limit, total)
    filled = [queue for queue in QUEUES if waiting[queue]]
    for queue in QUEUES:
        assert 0 <= taken[queue] <= waiting[queue]
        if waiting[queue] and len(filled) <= limit < total:
            assert taken[queue] >= 1
            assert abs(taken[queue] - limit * waiting[queue] / total) <= len(filled)


def test_where_queues_outnumber_the_limit_each_has_its_turn() -> None:
    begins = dict.fromkeys(QUEUES, 0)
    ends = dict.fromkeys(QUEUES, 3)
    for _ in range(14):
        begins = share_limit(begins, ends, 2)
    assert begins == ends


@given(
    st.lists(
        st.tuples(st.sampled_from(QUEUES), st.integers(0, 99), st.integers(1, 99)), max_size=6
    ),
    st.integers(0, 20),
    st.integers(0, 30),
)
def test_divided_ranges_are_the_same_messages_in_pieces_as_small_as_asked(
    drawn: list[tuple[MessageQueue, int, int]], pieces_min: int, messages_max: int
) -> None:
    ranges = [OffsetRange(queue, begin, begin + count) for queue, begin, count in drawn]
    pieces = divide(ranges, pieces_min=pieces_min, messages_max=messages_max)
    messages = [(one.queue, at) for one in ranges for at in range(one.begin, one.end)]
    assert [(one.queue, at) for one in pieces for at in range(one.begin, one.end)] == messages
    if messages_max:
        assert all(one.count <= messages_max for one in pieces)
    if ranges:
        assert len(pieces) >= min(pieces_min, len(messages))
    packages = pack(pieces, messages_min=40, pieces_min=pieces_min)
    packed = [(one.queue, at) for one in _flat(packages) for at in range(one.begin, one.end)]
    assert sorted(packed) == sorted(messages)
    assert all(len({one.queue.broker_name for one in package}) == 1 for package in packages)
    assert len(packages) >= min(pieces_min, len(pieces)) // 2


def _flat(packages: list[tuple[OffsetRange, ...]]) -> list[OffsetRange]:
    return [one for package in packages for one in package]


def test_a_new_queue_is_read_from_its_first_message() -> None:
    assert between({}, {QUEUES[0]: 5}) == [OffsetRange(QUEUES[0], 0, 5)]


def test_what_is_not_there_is_named_and_left_out() -> None:
    first, second, third = QUEUES[:3]
    there, losses = clip(
        [OffsetRange(first, 0, 10), OffsetRange(second, 5, 9), OffsetRange(third, 1, 2)],
        {first: Bounds(4, 8), second: None},
    )
    assert there == [OffsetRange(first, 4, 8), OffsetRange(second, 5, 9)]
    assert [(loss.queue, loss.begin, loss.end) for loss in losses] == [
        (first, 0, 4),
        (first, 8, 10),
        (third, 1, 2),
    ]
