"""What a reset would do, why a group stands still, and what a body looks like."""

from __future__ import annotations

import pytest

from aerobee import Group, GroupQueueState, Member, MessageQueue, QueueBounds
from aerobee.console.bodies import SHOWN_BYTES_MAX, body_of, preview_of
from aerobee.console.reset_plan import ResetPlan, places_text, read_places
from aerobee.console.standing_still import reasons
from aerobee.console.words import age, length, moment, number, size
from tests.console.fake_admin import a_group, message, summary

QUEUE = MessageQueue("orders", "broker a", 3)


@pytest.mark.parametrize(
    ("before", "after", "again", "skipped", "left"),
    [
        (50, 20, 30, 0, 80),
        (50, 90, 0, 40, 10),
        (50, 50, 0, 0, 50),
        (5, 20, 0, 10, 80),  # 5 to 10 were removed by retention
        (None, 100, 0, 90, 0),
        (200, 100, 0, 0, 0),
    ],
)
def test_a_plan_counts_what_comes_again_and_what_is_skipped(
    before: int | None, after: int, again: int, skipped: int, left: int
) -> None:
    plan = ResetPlan.of({QUEUE: before}, {QUEUE: after}, {QUEUE: QueueBounds(10, 100, 0)})
    assert (plan.again, plan.skipped, plan.left) == (again, skipped, left)


def test_a_form_confirms_exactly_the_plan() -> None:
    plan = ResetPlan.of({}, {QUEUE: 7}, {QUEUE: QueueBounds(0, 9, 0)})
    assert read_places("orders", places_text(plan)) == {QUEUE: 7}
    for bad in ("", "1 2", "1 -2 b", "x 2 b", "1 ٣ b"):
        with pytest.raises(ValueError, match=r"."):
            read_places("orders", [bad])


def member(name: str, *topics: str, quiet_ms: int = 0, official: str = "") -> Member:
    return Member(name, dict.fromkeys(topics, "*"), False, quiet_ms, official)


def said(group: Group, dead_letters: int = 0) -> list[str]:
    return [each.text for each in reasons(group, summary("g", dead_letters=dead_letters))]


def test_a_group_that_gets_on_has_no_reason() -> None:
    state = GroupQueueState(MessageQueue("orders", "b", 0), "c", 1, 5, 0, 9)
    assert said(Group("g", (member("c", "orders"),), (state,), {})) == []


def test_each_reason_is_a_sentence() -> None:
    assert said(a_group("g")) == ["no member is connected, and 3 messages wait"]
    assert said(a_group("g", members=[member("c", "other")])) == [
        "no member subscribes to orders, where 3 messages wait"
    ]
    quiet = member("c", "orders", quiet_ms=20_000)
    assert said(a_group("g", members=[quiet])) == [
        "member c was last heard 20 s ago, and keeps its queues until its session ends",
        "no member holds 1 queue with unread messages (orders@broker-a:0)",
    ]
    assert said(a_group("g", lag=0, members=[member("c", "orders"), member("d", "x")])) == [
        "members subscribe to different topics or filters, so which messages are read depends on "
        "which member holds a queue"
    ]
    assert said(a_group("g", lag=0), dead_letters=1) == [
        "1 message failed too often and is a dead letter"
    ]
    away = Group("g", (), (), {}, ("broker-b",))
    assert said(away) == ["broker-b does not answer: what the group has there is unknown"]


def test_who_polls_holds_no_queue() -> None:
    assert said(a_group("g", members=[member("c", "orders", official="simple consumer")])) == []


def test_a_body_is_shown_as_what_it_is() -> None:
    assert body_of(message(body=b'{"a":1}')).text == '{\n  "a": 1\n}'
    assert body_of(message(body=b'{"a":1}'), as_bytes=True).kind == "bytes"
    assert (body_of(message(body=b"\xff\x00A")).kind, preview_of(message(body=b"\xff"))) == (
        "bytes",
        "(1 bytes)",
    )
    assert body_of(message(body=b"\xff\x00A")).text.endswith("ff 00 41" + " " * 41 + "..A")
    long = body_of(message(body="é".encode() * SHOWN_BYTES_MAX))
    assert (long.kind, long.is_cut, len(long.text)) == ("text", True, SHOWN_BYTES_MAX // 2)
    assert body_of(message(body=b"[" * 5_000)).kind == "text", "deep JSON is text"
    assert "\\u202e" in body_of(message(body="\u202e".encode())).text


def test_words() -> None:
    assert [length(each) for each in (0, 999, 61_000, 3_600_000, 90_000_000)] == [
        "0 ms", "999 ms", "1 min 1 s", "1 h", "1 d 1 h",
    ]  # fmt: skip
    assert (age(0), size(1_536), size(10)) == ("-", "1.5 KiB", "10 B")
    assert "unknown" in number(None)
    assert "unknown" in size(None)
    assert "1970-01-01 00:00:01.500 UTC" in moment(1_500)
    assert moment(10**18) == "1000000000000000000 ms after 1970"
