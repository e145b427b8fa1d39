"""What Apache's broker writes of messages that it handed out by POP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aerobee.store.format.pop_records import (
    PollKey,
    PopAcks,
    PopCheckpoint,
    PopRecordIllegal,
    pop_record_of,
    revived_record,
)
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import Record
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import HostAddress

HOST = HostAddress(b"\x7f\x00\x00\x01", 4242)
# As Apache RocketMQ 5.3.3 writes them.
CHECKPOINT = (
    '{"bm":0,"bn":"broker-a","c":"GroupA","d":[0,1,3],"it":60000,"n":3,"pt":1700000000000,"q":2,'
    '"reviveTime":1700000060000,"ro":0,"so":100,"t":"TopicA"}'
)
ACK = '{"ao":101,"bn":"broker-a","c":"GroupA","pt":1700000000000,"q":2,"so":100,"t":"TopicA"}'
ACKS = ACK[:-1] + ',"aol":[100,103]}'
KEY = PollKey("GroupA", "TopicA", 2, 100, 1_700_000_000_000)


def told(tag: str, body: str) -> PopCheckpoint | PopAcks:
    return pop_record_of(stored(body.encode(), {"TAGS": tag}))


def stored(body: bytes, properties: dict[str, str]) -> Record:
    return Record(
        encode_record(
            topic=b"TopicA",
            body=body,
            properties=encode_properties(properties),
            born_timestamp_ms=1,
            born_host=HOST,
        )
    )


def changed(**members: Any) -> str:
    return json.dumps({**json.loads(CHECKPOINT), **members})


def test_a_checkpoint_says_which_messages_are_out_and_until_when() -> None:
    assert told("ck", CHECKPOINT) == PopCheckpoint(KEY, 1_700_000_060_000, (100, 101, 103))
    done = told("ck", changed(bm=0b101))
    assert done == PopCheckpoint(KEY, 1_700_000_060_000, (101,))


def test_a_checkpoint_without_steps_is_of_messages_that_follow_each_other() -> None:
    for body in (changed(d=[]), changed(d=None)):
        assert told("ck", body) == PopCheckpoint(KEY, 1_700_000_060_000, (100, 101, 102))


def test_acks_name_their_checkpoint() -> None:
    assert told("ack", ACK) == PopAcks(KEY, (101,))
    assert told("bAck", ACKS) == PopAcks(KEY, (100, 103))


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        ("ck", "{}"),
        ("ck", "no JSON"),
        ("ck", "[]"),
        ("ck", changed(q="2")),
        ("ck", changed(so=-1)),
        ("ck", changed(c=None)),
        ("ck", changed(d=[0] * 128)),
        ("ck", changed(n=1 << 80)),
        ("bAck", ACK),
        ("other", ACK),
        ("", ACK),
    ],
)
def test_anything_else_is_refused(tag: str, body: str) -> None:
    with pytest.raises(PopRecordIllegal):
        told(tag, body)


def test_a_revived_message_counts_its_delivery_and_keeps_when_it_was_first_handed_out() -> None:
    first = stored(b"body", {"UNIQ_KEY": "ID-1", "KEYS": "order-7"})
    once = Record(revived_record(first, "%RETRY%g_t", pop_ms=5, store_host_ipv6=False))
    twice = Record(revived_record(once, "%RETRY%g_t", pop_ms=9, store_host_ipv6=False))
    for times, record in ((1, once), (2, twice)):
        assert (record.topic, record.reconsume_times) == ("%RETRY%g_t", times)
        assert bytes(record.body) == b"body"
        properties = {"UNIQ_KEY": "ID-1", "KEYS": "order-7", "1ST_POP_TIME": "5"}
        assert dict(record.properties) == properties
