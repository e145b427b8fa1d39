"""When schedules run: cron expressions in time zones with summer time, and intervals."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.recurring.times import (
    COUNTED_MAX,
    NEVER,
    When,
    check_when,
    due,
    next_after,
)
from aerobee.runtime.errors import InvalidArgument
from tests.support.property_runs import examples

BERLIN = ZoneInfo("Europe/Berlin")
DAY_MS = 86_400_000
MORNINGS = When(cron="0 8 * * MON-FRI", zone="Europe/Berlin")


def ms(text: str) -> int:
    """Of a time in Berlin, unless it says otherwise."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=BERLIN)).timestamp() * 1_000)


def times(when: When, after: str, count: int) -> list[str]:
    found, at_ms = [], ms(after)
    for _ in range(count):
        at_ms = next_after(when, at_ms)
        if at_ms == NEVER:
            break
        found.append(datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone(BERLIN).isoformat())
    return found


def test_a_cron_expression_keeps_the_time_of_its_zone_through_summer_time() -> None:
    assert times(MORNINGS, "2026-03-26T12:00", 3) == [
        "2026-03-27T08:00:00+01:00",
        "2026-03-30T08:00:00+02:00",
        "2026-03-31T08:00:00+02:00",
    ]


def test_a_fixed_time_that_is_skipped_comes_right_after_the_gap() -> None:
    nightly = When(cron="30 2 * * *", zone="Europe/Berlin")
    assert times(nightly, "2026-03-28T12:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_fixed_time_that_comes_twice_runs_the_first_time() -> None:
    nightly = When(cron="30 2 * * *", zone="Europe/Berlin")
    assert times(nightly, "2026-10-24T12:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    assert times(nightly, "2026-10-25T02:45:00+02:00", 1) == ["2026-10-26T02:30:00+01:00"]


def test_what_runs_every_hour_runs_in_both_hours_of_an_overlap_and_not_in_a_gap() -> None:
    hourly = When(cron="30 * * * *", zone="Europe/Berlin")
    assert times(hourly, "2026-10-25T01:45", 3) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:30:00+01:00",
    ]
    assert times(hourly, "2026-03-29T01:15", 2) == [
        "2026-03-29T01:30:00+01:00",
        "2026-03-29T03:30:00+02:00",
    ]


def test_an_interval_counts_from_its_beginning_and_knows_no_zones() -> None:
    when = When(every_ms=7_000, from_ms=1_000_000)
    assert next_after(when, 0) == 1_000_000
    assert next_after(when, 1_000_000) == 1_007_000
    assert next_after(when, 1_006_999) == 1_007_000


def test_no_time_is_before_the_beginning_or_at_the_end() -> None:
    when = When(
        cron="0 8 * * *",
        zone="Europe/Berlin",
        from_ms=ms("2026-06-10T08:00"),
        until_ms=ms("2026-06-12T08:00"),
    )
    assert times(when, "2026-01-01T00:00", 9) == [
        "2026-06-10T08:00:00+02:00",
        "2026-06-11T08:00:00+02:00",
    ]


@pytest.mark.parametrize(
    "when",
    [
        When(),
        When(cron="0 8 * * *", every_ms=1_000),
        When(cron="61 * * * *"),
        When(cron="hello"),
        When(cron="0 0 30 2 *"),
        When(cron="0 8 * * *", zone="Mars/Olympus"),
        When(cron="0 8 * * *", zone="../../etc/passwd"),
        When(every_ms=999),
        When(every_ms=1_000, until_ms=1 << 60),
    ],
)
def test_what_cannot_be_a_schedule_is_refused(when: When) -> None:
    with pytest.raises(InvalidArgument):
        check_when(when)


def test_what_is_due_is_counted_and_the_last_one_found_after_a_long_outage() -> None:
    first = next_after(MORNINGS, ms("2026-01-01T00:00"))
    found = due(MORNINGS, first, ms("2026-01-09T12:00"))
    assert (found.last_ms, found.times) == (ms("2026-01-09T08:00"), 7)
    assert found.next_ms == ms("2026-01-12T08:00")
    minutely = When(cron="* * * * *", zone="Europe/Berlin")
    found = due(minutely, next_after(minutely, ms("2026-01-01T00:00")), ms("2036-06-01T12:00:30"))
    assert (found.last_ms, found.times) == (ms("2036-06-01T12:00"), COUNTED_MAX)
    secondly = When(every_ms=1_000, from_ms=500)
    found = due(secondly, 500, 10**12)
    assert (found.last_ms, found.next_ms) == (10**12 - 500, 10**12 + 500)


EXPRESSIONS = st.builds(
    " ".join,
    st.tuples(
        st.sampled_from(["*", "0", "30", "*/7", "15,45"]),
        st.sampled_from(["*", "2", "3", "*/5", "1-3"]),
        st.sampled_from(["*", "1", "29", "L", "*/10"]),
        st.sampled_from(["*", "3", "10", "2"]),
        st.sampled_from(["*", "SUN", "1-5"]),
    ),
)
MOMENTS = st.integers(ms("2026-01-01T00:00"), ms("2027-01-01T00:00"))


@settings(max_examples=examples(150), deadline=None)
@given(
    EXPRESSIONS,
    st.sampled_from(["Europe/Berlin", "UTC", "Australia/Lord_Howe", "America/St_Johns"]),
    MOMENTS,
    st.integers(0, 40),
)
def test_times_rise_and_none_is_left_out_wherever_one_begins(
    cron: str, zone: str, after_ms: int, count: int
) -> None:
    when = When(cron=cron, zone=zone)
    found = []
    at_ms = after_ms
    for _ in range(count):
        at_ms = next_after(when, at_ms)
        if at_ms == NEVER:
            break
        found.append(at_ms)
    assert found == sorted(set(found))
    assert all(each > after_ms for each in found)
    if found and found[-1] - after_ms < 3 * DAY_MS:
        middle = (after_ms + found[0]) // 2
        assert next_after(when, middle) == found[0], "from any moment before, the same time is next"
