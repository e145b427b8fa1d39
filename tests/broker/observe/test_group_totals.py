"""One reading of all groups serves whoever asks, and costs a broker a hundredth of its time."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.broker.observe.group_totals import GroupTotal, GroupTotals
from aerobee.broker.observe.metrics.lag import GroupLag
from aerobee.runtime.clock import ManualClock


@dataclass
class Lags:
    """Readings that take a time of their own."""

    clock: ManualClock
    takes_ms: int = 0
    readings: int = 0
    rows: list[GroupLag] = field(default_factory=list)

    async def read(self, now_ms: object, slices: object) -> list[GroupLag]:
        self.readings += 1
        self.clock.advance_ms(self.takes_ms)
        return self.rows


@pytest.fixture
def lags() -> Lags:
    return Lags(ManualClock())


def totals(lags: Lags) -> GroupTotals:
    parts: Any = SimpleNamespace(clock=lags.clock, lag=lags, folder=SimpleNamespace(topics=()))
    return GroupTotals(parts)


async def test_who_asks_within_a_second_gets_the_same_reading(lags: Lags) -> None:
    read = totals(lags).read
    first = await read()
    lags.clock.advance_ms(999)
    assert await read() is first
    lags.clock.advance_ms(1)
    assert await read() is not first
    assert lags.readings == 2


async def test_a_long_reading_is_not_repeated_before_a_hundred_times_as_long(lags: Lags) -> None:
    lags.takes_ms = 50
    read = totals(lags).read
    first = await read()
    lags.clock.advance_ms(4_900)
    assert await read() is first
    lags.clock.advance_ms(200)
    assert await read() is not first
    assert lags.readings == 2


def test_what_is_unknown_on_one_topic_is_unknown_in_all() -> None:
    known = GroupLag("g", "t", lag=3, inflight=1, ready=2, latency_ms=70)
    retries = GroupLag("g", "%RETRY%g", lag=1, inflight=0, ready=1, latency_ms=90)
    assert GroupTotal.of([known, retries]) == GroupTotal(1, 4, 1, 90)
    unknown = GroupLag("g", "u", lag=None, inflight=None, ready=None)
    assert GroupTotal.of([known, unknown]) == GroupTotal(2, None, None, None)
