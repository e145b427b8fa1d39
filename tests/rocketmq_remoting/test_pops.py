"""Handles, batches and answers of POP as clients write and read them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from aerobee.rocketmq_remoting.pops import (
    ACKS_MAX,
    PopAsked,
    PopHandle,
    PoppedFrom,
    origin_of,
    popped_fields,
    read_acks,
)
from aerobee.runtime.errors import InvalidArgument

HANDLE = "5 1700000000000 60000 0 0 broker-a 3 7"
FIELDS = {
    "consumerGroup": "g", "topic": "t", "queueId": "3", "offset": "7", "extraInfo": HANDLE,
}  # fmt: skip


def test_a_handle_names_a_delivery_by_its_times() -> None:
    found = PopHandle.of(FIELDS)
    assert found == PopHandle("g", "t", 1_700_000_000_000, 60_000, 0, "broker-a", 3, 7)
    assert found.visible_ms == 1_700_000_060_000


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "5",
        HANDLE + " 1",
        HANDLE.replace(" 0 broker", " 3 broker"),
        HANDLE.replace(" ", "  ", 1),
        HANDLE.replace("60000", "-1"),
        HANDLE.replace("60000", "06"),
        HANDLE[:-1] + "8",
        HANDLE.replace(" 3 ", " 4 "),
        HANDLE.replace("broker-a", "b" * 2_000),
        HANDLE.replace("7", "٧"),
    ],
)
def test_what_is_no_handle_is_refused(handle: str) -> None:
    with pytest.raises(InvalidArgument):
        PopHandle.of({**FIELDS, "extraInfo": handle})


def test_clients_name_a_retry_topic_made_of_group_and_topic() -> None:
    assert origin_of("g", "%RETRY%g_t") == "t"
    assert origin_of("g", "%RETRY%g+t") == "t"
    assert origin_of("g", "%RETRY%g_%RETRY%g") == "%RETRY%g"
    for topic in ("t", "%RETRY%g", "%RETRY%other_t", "%RETRY%g_"):
        assert origin_of("g", topic) == topic


def batch(**change: Any) -> bytes:
    ack = {"c": "g", "t": "t", "r": "0", "so": 10, "q": 1, "rq": 2, "pt": 30, "it": 40,
           "b": base64.b64encode(bytes([0b101, 0, 0b10])).decode(), **change}  # fmt: skip
    return json.dumps({"brokerName": "broker-a", "acks": [ack]}).encode()


def test_a_batch_counts_from_its_first_offset() -> None:
    found = read_acks(batch())
    assert [each.offset for each in found] == [10, 12, 27]
    assert found[0] == PopHandle("g", "t", 30, 40, 2, "broker-a", 1, 10)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"brokerName":"b","acks":[1]}',
        batch(b="x"),
        batch(b=7),
        batch(so=None),
        batch(q="1"),
        batch(pt=1 << 70),
        batch(b=base64.b64encode(b"\xff" * (ACKS_MAX // 8 + 1)).decode()),
    ],
)
def test_what_is_no_batch_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        read_acks(body)


def test_an_answer_names_each_queue_once_and_a_retry_topic_as_every_client_sees_it() -> None:
    parts = [PoppedFrom("t", 0, [4, 6]), PoppedFrom("%RETRY%g", 0, [1])]
    found = popped_fields(parts, popped_ms=5, invisible_ms=6, revive=3, left=9)
    assert found == {
        "popTime": "5",
        "invisibleTime": "6",
        "reviveQid": "3",
        "restNum": "9",
        "startOffsetInfo": "0 0 4;1 0 1",
        "msgOffsetInfo": "0 0 4,6;1 0 1",
    }
    newer = popped_fields(
        [PoppedFrom("%RETRY%g+t", 0, [1])], popped_ms=5, invisible_ms=6, revive=2, left=0
    )
    assert newer["startOffsetInfo"] == "1 0 1;2 0 1"


POLL = {"consumerGroup": "g", "topic": "t", "queueId": "-1", "maxMsgNums": "32",
        "invisibleTime": "1000"}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"maxMsgNums": "0"},
        {"maxMsgNums": "33"},
        {"invisibleTime": "0"},
        {"invisibleTime": str(13 * 3_600_000)},
        {"exp": "x" * 100_000},
        {"attemptId": "x" * 1_000},
        {"topic": ""},
    ],
)
def test_a_poll_for_too_much_is_refused(change: dict[str, str]) -> None:
    assert PopAsked.of(POLL).queue_id == -1
    with pytest.raises(InvalidArgument):
        PopAsked.of({**POLL, **change})
