"""The loop's delay is sampled often while the loop works, and seldom while it only waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.loop_delay import IDLE_INTERVAL_S, INTERVAL_S, WATCHED_S, LoopDelay


class Nights:
    """What the sampler sleeps, how late it wakes each time, and how long the loop worked then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *nights: tuple[float, float]) -> None:
        self.clock = ManualClock()
        self.slept_s: list[float] = []
        self.busy_s = 0.0
        self._nights = list(nights)
        monkeypatch.setattr("aerobee.runtime.loop_delay.asyncio.sleep", self._sleep)
        self.delay = LoopDelay(self.clock, busy_s=lambda: self.busy_s)

    async def _sleep(self, seconds: float) -> None:
        if len(self.slept_s) == len(self._nights):
            raise asyncio.CancelledError
        late_s, worked_s = self._nights[len(self.slept_s)]
        self.slept_s.append(seconds)
        self.clock.advance_ms(round((seconds + late_s) * 1_000))
        self.busy_s += worked_s

    async def pass_by(self) -> Any:
        with pytest.raises(asyncio.CancelledError):
            await self.delay.run()


async def test_a_loop_that_only_waits_is_left_alone_and_a_working_one_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nights = Nights(monkeypatch, (0, 0.05), (0, 0.0), (0, 0.01), (0, 0.5), (0.03, 0.1))
    await nights.pass_by()
    assert nights.slept_s == [
        INTERVAL_S,
        INTERVAL_S,
        IDLE_INTERVAL_S,
        IDLE_INTERVAL_S,
        INTERVAL_S,
    ]
    assert nights.delay.last_ms == pytest.approx(30)
    assert sum(nights.delay.histogram.copy().counts) == 5


async def test_a_delay_is_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    nights = Nights(monkeypatch, (0.2, 0.0), *[(0.0, 0.0)] * 25)
    await nights.pass_by()
    assert nights.delay.p99_ms() == pytest.approx(200)
    often = round(WATCHED_S / INTERVAL_S)
    later = Nights(monkeypatch, (0.2, 0.0), *[(0.0, 0.0)] * (often + 32))
    await later.pass_by()
    assert later.delay.p99_ms() == pytest.approx(0, abs=1e-6)


async def test_a_loop_that_is_kept_from_working_is_looked_at_often_although_it_does_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nights = Nights(monkeypatch, (0, 0.0), (0.6, 0.0), (0, 0.0), (0.6, 0.0), (0, 0.0))
    await nights.pass_by()
    assert nights.slept_s == [INTERVAL_S, IDLE_INTERVAL_S, *[INTERVAL_S] * 3]
