"""Frames: hopped over, filtered, and refused when broken."""

from __future__ import annotations

import re
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client_core import MessageQueue
from aerobee.consumer_client import PullConsumer, ReceivedBatch
from aerobee.consumer_client.filters import compared_tags
from aerobee.consumer_client.received_batch import decode_entries
from aerobee.runtime import errors
from aerobee.store.format.record import HostAddress, encode_record
from aerobee.store.format.record_layout import BODY_AT

QUEUE = MessageQueue("orders", "broker-a", 3)
IPV4 = HostAddress(b"\x7f\x00\x00\x01", 1)
IPV6 = HostAddress(bytes(15) + b"\x01", 1)


def record(
    body: bytes,
    *,
    tag: str = "",
    host: HostAddress = IPV4,
    store_host_ipv6: bool = False,
    sys_flag: int = 0,
) -> bytes:
    return encode_record(
        topic=b"orders",
        body=body,
        properties=f"TAGS\x01{tag}\x02".encode() if tag else b"",
        born_timestamp_ms=1,
        born_host=host,
        store_host_ipv6=store_host_ipv6,
        sys_flag=sys_flag,
    )


def batch(*records: bytes, tags: frozenset[str] | None = None) -> ReceivedBatch:
    return ReceivedBatch(QUEUE, b"".join(records), len(records), len(records), tags)


@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=50), st.booleans(), st.booleans(), st.booleans()),
        max_size=8,
    )
)
def test_bodies_and_messages_say_the_same_whatever_the_hosts_and_compression(
    kinds: list[tuple[bytes, bool, bool, bool]],
) -> None:
    received = batch(
        *(
            record(
                zlib.compress(body) if is_compressed else body,
                host=IPV6 if born_ipv6 else IPV4,
                store_host_ipv6=store_ipv6,
                sys_flag=1 if is_compressed else 0,
            )
            for body, born_ipv6, store_ipv6, is_compressed in kinds
        )
    )
    bodies = [body for body, *_ in kinds]
    assert received.bodies() == bodies
    assert [message.body for message in received] == bodies
    assert [message.body for message in received] == bodies
    assert all(message.queue == QUEUE for message in received)


def test_one_damaged_body_is_not_handed_out_among_whole_ones() -> None:
    damaged = bytearray(record(b"second"))
    damaged[BODY_AT] ^= 1
    received = batch(record(b"first"), bytes(damaged))
    with pytest.raises(errors.CorruptBody, match="damaged since it was sent"):
        received.bodies()
    messages = received.messages()
    assert messages[0].body == b"first"
    with pytest.raises(errors.CorruptBody):
        _ = messages[1].body


def test_tags_are_compared_as_text() -> None:
    records = [record(tag.encode() or b"-", tag=tag) for tag in ("a", "b", "", "ab")]
    wanted = compared_tags("a || ab || a")
    assert batch(*records, tags=wanted).bodies() == [b"a", b"ab"]
    assert len(batch(*records, tags=compared_tags(" * ")).bodies()) == 4


@pytest.mark.parametrize("expression", ["||", " || ", "a || *"])
def test_expressions_without_a_meaning_are_refused(expression: str) -> None:
    with pytest.raises(errors.FilterIllegal):
        compared_tags(expression)


@pytest.mark.parametrize(
    ("expression", "meant"),
    [
        ("paid, refunded", "paid || refunded"),
        ("paid|refunded", "paid || refunded"),
        ("a && b", "a || b"),
        ("x |", "x"),
        ("a b || c", "a || b || c"),
        ("a | *", "a"),
        ("& |", "paid || refunded"),
    ],
)
def test_an_expression_that_no_message_can_match_is_refused_with_what_was_meant(
    expression: str, meant: str
) -> None:
    with pytest.raises(errors.FilterIllegal, match=re.escape(f"write {meant!r}")):
        compared_tags(expression)
    with pytest.raises(errors.FilterIllegal):
        PullConsumer("g", nameservers="127.0.0.1:1").subscribe("tags", expression)


@pytest.mark.parametrize("expression", ["a,b", "a ||", "航班||b&c", " a  ||  a "])
def test_any_word_may_be_a_tag(expression: str) -> None:
    assert compared_tags(expression)


@given(st.integers(1, 300), st.binary(max_size=100))
def test_bytes_that_are_no_records_are_an_error_and_never_a_loop(cut: int, junk: bytes) -> None:
    whole = record(b"x" * 100) + record(b"y" * 100)
    for broken in (whole[: -min(cut, 250)], whole + junk + b"\0", bytes(len(junk) + 1)):
        if len(broken) in (0, len(whole) // 2):
            continue
        with pytest.raises(errors.MessageIllegal, match="fetched again"):
            batch(broken).bodies()
        with pytest.raises(errors.MessageIllegal, match="fetched again"):
            decode_entries(broken, QUEUE, None)
