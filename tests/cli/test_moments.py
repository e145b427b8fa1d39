"""Points in time as users write them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from aerobee.cli.moments import (
    Moment,
    MomentKind,
    parse_delay_ms,
    parse_moment,
    parse_patience_ms,
    parse_time_ms,
    timestamp_text,
    without_milliseconds,
)

NOW_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("first", Moment(MomentKind.FIRST)),
        ("last", Moment(MomentKind.LAST)),
        ("90s", Moment(MomentKind.TIME, NOW_MS - 90_000)),
        ("15m", Moment(MomentKind.TIME, NOW_MS - 900_000)),
        ("2h", Moment(MomentKind.TIME, NOW_MS - 7_200_000)),
        ("3d", Moment(MomentKind.TIME, NOW_MS - 259_200_000)),
        ("1767225600123", Moment(MomentKind.TIME, 1_767_225_600_123)),
        ("2026-01-01T00:00:00+00:00", Moment(MomentKind.TIME, 1_767_225_600_000)),
        ("2026-01-01T01:00:00.250+01:00", Moment(MomentKind.TIME, 1_767_225_600_250)),
    ],
)
def test_a_moment_is_read_as_it_is_meant(text: str, moment: Moment) -> None:
    assert parse_moment(text, now_ms=NOW_MS) == moment


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime(2026, 1, 1, 12, 30).astimezone()
    assert parse_moment("2026-01-01 12:30", now_ms=NOW_MS).timestamp_ms == local.timestamp() * 1000


@pytest.mark.parametrize(
    "text", ["", "now", "yesterday", "5", "5w", "-1s", "2026-13-01", "12:00", "9" * 30 + "d"]
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="write first, last"):
        parse_moment(text, now_ms=NOW_MS)


def test_an_age_that_reaches_before_1970_is_refused() -> None:
    with pytest.raises(ValueError, match="before 1970: write a shorter age"):
        parse_moment("999999999999999999d", now_ms=NOW_MS)


def test_a_timestamp_is_shown_in_the_form_that_is_read() -> None:
    shown = timestamp_text(1_767_225_600_123)
    assert parse_moment(shown, now_ms=NOW_MS).timestamp_ms == 1_767_225_600_123
    assert timestamp_text(0) == "-"


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("2027-03-28T02:30", "2027-03-28T01:30:00+01:00", "2027-03-28T03:30:00+02:00"),
        ("2027-10-31T02:30", "2027-10-31T02:30:00+02:00", "2027-10-31T02:30:00+01:00"),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_a_local_time_in_the_hour_when_clocks_change_is_refused_with_both_choices(
    text: str, first: str, second: str
) -> None:
    for parse in (parse_time_ms, lambda said: parse_moment(said, now_ms=NOW_MS)):
        with pytest.raises(ValueError, match=re.escape(f"write {first} or {second}")):
            parse(text)
    assert parse_time_ms(second) - parse_time_ms(first) == 3_600_000


@pytest.mark.usefixtures("berlin")
def test_a_printed_time_given_back_is_the_same_moment_also_when_clocks_are_set_back() -> None:
    first = parse_time_ms("2027-10-31T02:30+02:00")
    for moment_ms in (first, first + 3_600_000, first + 386):
        assert parse_time_ms(timestamp_text(moment_ms)) == moment_ms
    assert timestamp_text(first) == "2027-10-31 02:30:00.000+02:00"
    assert without_milliseconds(timestamp_text(first)) == "2027-10-31 02:30:00+02:00"


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [("0s", 0), ("250ms", 250), ("30s", 30_000), ("15m", 900_000), ("2h", 7_200_000)],
)
def test_a_delay_is_read_as_it_is_meant(text: str, delay_ms: int) -> None:
    assert parse_delay_ms(text) == delay_ms


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        *((text, "such as 30s") for text in ("", "30", "-1s", "1.5s", "soon", "3w")),
        ("3661d", "a shorter time"),
        ("9" * 18 + "d", "a shorter time"),
    ],
)
def test_no_delay_is_refused_with_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        parse_delay_ms(text)


def test_a_time_to_come_is_read_as_it_is_meant() -> None:
    assert parse_time_ms("1767225600123") == 1_767_225_600_123
    assert parse_time_ms("2026-01-01T01:00:00.250+01:00") == 1_767_225_600_250
    local = datetime(2026, 1, 1, 12, 30).astimezone()
    assert parse_time_ms("2026-01-01 12:30") == local.timestamp() * 1_000
    for text in ("", "90s", "first", "2026-13-01"):
        with pytest.raises(ValueError, match="write one such as"):
            parse_time_ms(text)


@pytest.mark.parametrize(
    ("text", "patience_ms"),
    [("5", 5_000), ("0.25", 250), ("2s", 2_000), ("500ms", 500), ("1m", 60_000)],
)
def test_a_patience_without_a_unit_is_in_seconds(text: str, patience_ms: int) -> None:
    assert parse_patience_ms(text) == patience_ms


@pytest.mark.parametrize("text", ["", "0", "0.0001", "0s", "-1", "5 s", "1e3", "nan", "soon"])
def test_a_patience_is_a_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"no length of time|less than 1 ms"):
        parse_patience_ms(text)
