"""All callers share one reading of all groups, which takes a broker a two-hundredth of its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.broker.observe import group_totals
from aerobee.broker.observe.group_totals import GroupTotal, GroupTotals
from aerobee.broker.observe.metrics.lag import GroupLag
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import Busy
from tests.support.waiting import until


@dataclass
class Lags:
    """Readings that take a time of their own."""

    clock: ManualClock
    takes_ms: int = 0
    readings: int = 0
    failures: int = 0
    rows: list[GroupLag] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_end.set()

    async def read(self, now_ms: object, slices: object) -> list[GroupLag]:
        self.readings += 1
        await self.may_end.wait()
        self.clock.advance_ms(self.takes_ms)
        if self.failures:
            self.failures -= 1
            raise Busy("the reads of the disk are full")
        return self.rows


@pytest.fixture
def lags() -> Lags:
    return Lags(ManualClock())


@asynccontextmanager
async def running(lags: Lags) -> AsyncIterator[GroupTotals]:
    parts: Any = SimpleNamespace(clock=lags.clock, lag=lags, folder=SimpleNamespace(topics=()))
    totals = GroupTotals(parts)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(totals.run())
        yield totals
        task.cancel()


async def test_who_asks_within_a_second_gets_the_same_reading(lags: Lags) -> None:
    async with running(lags) as totals:
        first = await totals.read()
        lags.clock.advance_ms(999)
        assert await totals.read() is first
        lags.clock.advance_ms(2)
        assert await totals.read() is not first
    assert lags.readings == 2


async def test_a_reading_that_failed_is_made_again(
    lags: Lags, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_totals, "RETRY_S", 0.001)
    lags.failures = 2
    async with running(lags) as totals:
        await totals.read()
    assert lags.readings == 3


async def test_a_long_reading_is_not_repeated_before_two_hundred_times_as_long(lags: Lags) -> None:
    lags.takes_ms = 50
    async with running(lags) as totals:
        first = await totals.read()
        lags.clock.advance_ms(9_900)
        assert await totals.read() is first
        lags.clock.advance_ms(200)
        assert await totals.read() is not first
    assert lags.readings == 2


async def test_nobody_waits_for_a_long_reading_but_for_the_first(lags: Lags) -> None:
    lags.takes_ms = 500
    async with running(lags) as totals:
        first = await totals.read()
        lags.clock.advance_ms(101_000)
        assert await totals.read() is first
        await until(lambda: lags.readings == 2)
        assert await totals.read() is not first


async def test_a_caller_that_gives_up_ends_no_reading(lags: Lags) -> None:
    lags.may_end.clear()
    async with running(lags) as totals:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await totals.read()
        lags.may_end.set()
        await totals.read()
    assert lags.readings == 1


def test_what_is_unknown_on_one_topic_is_unknown_in_all() -> None:
    known = GroupLag("g", "t", lag=3, inflight=1, ready=2, latency_ms=70)
    retries = GroupLag("g", "%RETRY%g", lag=1, inflight=0, ready=1, latency_ms=90)
    assert GroupTotal.of([known, retries]) == GroupTotal(1, 4, 1, 90)
    unknown = GroupLag("g", "u", lag=None, inflight=None, ready=None)
    assert GroupTotal.of([known, unknown]) == GroupTotal(2, None, None, None)
