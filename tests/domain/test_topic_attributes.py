"""What the attributes of a topic may say."""

from __future__ import annotations

import pytest

from aerobee.domain.topic_attributes import (
    KEEP_BYTES,
    KEEP_MS,
    KEEP_UNREAD_MAX_BYTES,
    MESSAGE_TYPE,
    MESSAGE_TYPES,
    check_topic_attributes,
    keep_bytes,
    keep_ms,
    keep_unread_max_bytes,
    topic_type,
)
from aerobee.runtime.errors import InvalidArgument


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("1", 1), ("1073741824", 1 << 30)])
def test_the_ceiling_of_unread_messages_is_a_number_of_bytes(text: str, value: int) -> None:
    attributes = {KEEP_UNREAD_MAX_BYTES: text}
    check_topic_attributes(attributes)
    assert keep_unread_max_bytes(attributes) == value


@pytest.mark.parametrize("text", ["-1", "1.5", "1GB", " 1", "٣", "1" * 19])
def test_anything_else_is_refused_and_where_it_slipped_in_means_no_ceiling(text: str) -> None:
    attributes = {KEEP_UNREAD_MAX_BYTES: text}
    with pytest.raises(InvalidArgument, match=KEEP_UNREAD_MAX_BYTES):
        check_topic_attributes(attributes)
    assert keep_unread_max_bytes(attributes) is None


def test_a_topics_type_is_one_of_those_that_apache_knows() -> None:
    for name in MESSAGE_TYPES:
        check_topic_attributes({MESSAGE_TYPE: name})
        assert topic_type({MESSAGE_TYPE: name}) == name
    assert topic_type({}) == "NORMAL"
    with pytest.raises(InvalidArgument, match="one of NORMAL, FIFO"):
        check_topic_attributes({MESSAGE_TYPE: "fifo"})


def test_without_it_and_when_it_is_removed_there_is_no_ceiling() -> None:
    for attributes in ({}, {KEEP_UNREAD_MAX_BYTES: ""}, {"message.type": "NORMAL"}):
        check_topic_attributes(attributes)
        assert keep_unread_max_bytes(attributes) is None


@pytest.mark.parametrize("odd", ["\x1b[2J", "a\nb", "\x9b31m", "\u202eevil", "\x00", "\t"])
def test_what_a_terminal_cannot_show_is_neither_a_name_nor_a_value(odd: str) -> None:
    for attributes in ({odd: "x"}, {"x": odd}):
        with pytest.raises(InvalidArgument, match="unprintable characters") as refused:
            check_topic_attributes(attributes)
        assert str(refused.value).isprintable()
    check_topic_attributes({"owner": "Zoë, 東京 team"})


def test_an_attribute_has_a_name() -> None:
    with pytest.raises(InvalidArgument, match="no name"):
        check_topic_attributes({"": "x"})


@pytest.mark.parametrize("name", [KEEP_MS, KEEP_BYTES])
@pytest.mark.parametrize("text", ["0", "-1", "6h", "1e9", "9" * 19])
def test_what_a_topic_keeps_is_a_number_of_at_least_a_second_or_a_byte(
    name: str, text: str
) -> None:
    with pytest.raises(InvalidArgument, match=name):
        check_topic_attributes({name: text})
    assert keep_ms({name: text}) is keep_bytes({name: text}) is None


def test_a_topic_without_either_keeps_all_that_the_log_has() -> None:
    attributes = {KEEP_MS: "1000", KEEP_BYTES: "1"}
    check_topic_attributes(attributes)
    assert (keep_ms(attributes), keep_bytes(attributes)) == (1000, 1)
    assert keep_ms({}) is keep_bytes({KEEP_BYTES: ""}) is None
