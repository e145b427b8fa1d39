"""What `aerobee group show` says about retries: when, how often, and how it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aerobee import BackOff, GroupRetry, InOrderRetry
from aerobee.cli.retry_words import retry_lines

MINUTE_MS = 60_000
LEVELS_MS = (10_000, 30_000, *(each * MINUTE_MS for each in (1, 2, 3, 30, 60, 120)))


def by_delays(retries_max: int, *delays_ms: int) -> GroupRetry:
    return GroupRetry(retries_max, None, (), False, delays_ms)


def growing(retries_max: int, *told: int) -> GroupRetry:
    return GroupRetry(retries_max, BackOff(*told), (), False)


@pytest.mark.parametrize(
    ("retry", "line"),
    [
        (
            by_delays(16, *LEVELS_MS),
            "first retry after 10 s, then 30 s, 1 min, ... 2 h; dead letter after 17 attempts",
        ),
        (
            by_delays(4, *LEVELS_MS),
            "first retry after 10 s, then 30 s, 1 min, 2 min; dead letter after 5 attempts",
        ),
        (by_delays(1, *LEVELS_MS), "first retry after 10 s; dead letter after 2 attempts"),
        (by_delays(3, 90_000), "every retry after 90 s; dead letter after 4 attempts"),
        (
            by_delays(3),
            "retries after the times that the broker sets; dead letter after 4 attempts",
        ),
        (by_delays(0), "no retries: a failed message becomes a dead letter at once"),
        (
            growing(2, 200, 7_200_000),
            "first retry after 200 ms, then 2 times as long each time, at most 2 h; dead letter "
            "after 3 attempts",
        ),
        (growing(2, 1_500, 9_000, 1), "every retry after 1.5 s; dead letter after 3 attempts"),
    ],
)
def test_it_says_when_and_how_often(retry: GroupRetry, line: str) -> None:
    assert retry_lines({"broker-a": retry, "broker-b": retry}) == [line]


def test_brokers_that_differ_are_named() -> None:
    assert retry_lines({"broker-a": by_delays(0), "broker-b": by_delays(1, 10_000)}) == [
        "broker-a: no retries: a failed message becomes a dead letter at once",
        "broker-b: first retry after 10 s; dead letter after 2 attempts",
    ]


IN_ORDER = InOrderRetry(None, BackOff(1_000, MINUTE_MS))


def test_what_differs_for_listeners_in_order_is_a_line_of_its_own() -> None:
    without_end = replace(by_delays(16, *LEVELS_MS), in_order=IN_ORDER)
    assert retry_lines({"broker-a": without_end}) == [
        "first retry after 10 s, then 30 s, 1 min, ... 2 h; dead letter after 17 attempts",
        "listeners in order: first retry after 1 s, then 2 times as long each time, at most 1 min, "
        "without end",
    ]
    limited = replace(by_delays(3, 90_000), in_order=replace(IN_ORDER, retries_max=3))
    assert retry_lines({"broker-a": limited})[1:] == [
        "listeners in order: first retry after 1 s, then 2 times as long each time, at most 1 min; "
        "dead letter after 4 attempts"
    ]


def test_what_is_the_same_in_order_is_said_once() -> None:
    back_off = BackOff(200, 1_000)
    same = GroupRetry(2, back_off, (), False, in_order=InOrderRetry(2, back_off))
    assert len(retry_lines({"broker-a": same})) == 1
    never = GroupRetry(0, back_off, (), False, in_order=InOrderRetry(0, back_off))
    assert len(retry_lines({"broker-a": never})) == 1
