"""A pace in bytes a second, as arithmetic on given times."""

from __future__ import annotations

import pytest

from aerobee.broker.cold_reads.pace import BURST_S, Pace, Rate


def test_in_the_long_run_no_more_goes_than_the_rate_allows() -> None:
    pace = Pace(1_000_000)
    now_s, sent = 10.0, 0
    while now_s < 20.0:
        now_s += pace.wait_s(now_s)
        assert pace.wait_s(now_s) == 0.0
        pace.start(now_s, 50_000)
        sent += 50_000
    assert sent / 10.0 == pytest.approx(1_000_000, rel=0.02)


def test_after_a_rest_only_a_short_burst_is_free() -> None:
    pace = Pace(1_000_000)
    pace.start(0.0, 1_000_000)
    now_s, burst = 100.0, 0
    while pace.wait_s(now_s) == 0.0:
        pace.start(now_s, 1_000)
        burst += 1_000
    assert burst <= 1_000_000 * BURST_S + 1_000


def test_without_a_rate_nothing_waits() -> None:
    pace = Pace(0)
    pace.start(0.0, 1 << 40)
    assert pace.wait_s(0.0) == 0.0


def test_what_went_unwatched_is_forgotten() -> None:
    pace = Pace(1_000)
    pace.start(0.0, 1_000_000)
    assert pace.wait_s(1.0) > 900
    pace.clear()
    assert pace.wait_s(1.0) == 0.0


def test_a_rate_is_that_of_the_last_interval() -> None:
    rate = Rate(0.25)
    rate.observe(100.0, 0)
    rate.observe(100.1, 500)  # too soon to tell
    assert rate.per_s == 0.0
    rate.observe(100.5, 1_000)
    assert rate.per_s == pytest.approx(2_000)
    rate.observe(110.5, 1_000)
    assert rate.per_s == 0.0
