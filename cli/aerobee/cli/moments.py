"""Times as a user writes them: where to begin in a queue, and when a message is to arrive."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import click

from aerobee.runtime.clock import SystemClock
from aerobee.store.format.delay_levels import DELAY_MAX_MS

_AGO = re.compile(r"(\d{1,18})(s|m|h|d)", re.ASCII)
_DELAY = re.compile(r"(\d{1,18})(ms|s|m|h|d)", re.ASCII)
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MOMENT_METAVAR = "first|last|TIME"
_MILLISECONDS = re.compile(r"\.\d{3}(?=[+-])")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIX_MS = re.compile(r"\d{12,14}", re.ASCII)


class MomentKind(StrEnum):
    FIRST = "first"
    LAST = "last"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in a queue to start."""

    kind: MomentKind
    timestamp_ms: int = 0
    """Of TIME: the first message stored at or after it."""


def parse_moment(text: str, *, now_ms: int) -> Moment:
    """`first`, `last`, a date and time (ISO 8601), Unix milliseconds, or an age like `90s`, `2h`.

    A date and time without a zone is local time.

    Raises:
        ValueError: none of these.
    """
    if text in (MomentKind.FIRST, MomentKind.LAST):
        return Moment(MomentKind(text))
    if ago := _AGO.fullmatch(text):
        timestamp_ms = now_ms - int(ago[1]) * _UNIT_MS[ago[2]]
        if timestamp_ms < 0:
            raise ValueError(f"{text!r} is before 1970: write a shorter age")
        return Moment(MomentKind.TIME, timestamp_ms)
    if _UNIX_MS.fullmatch(text):
        return Moment(MomentKind.TIME, int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a point in time: write first, last, an age such as 90s, 15m, 2h or "
            "3d, a time such as 2026-01-31T12:00 or Unix milliseconds"
        ) from None
    return Moment(MomentKind.TIME, _unix_ms(moment, text))


def parse_delay_ms(text: str) -> int:
    """Milliseconds of a length of time such as `500ms`, `30s`, `15m`, `2h`, `3d`.

    Raises:
        ValueError: it is none.
    """
    match = _DELAY.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is no length of time: write a number and ms, s, m, h or d, such as 30s"
        )
    delay_ms = int(match[1]) * _UNIT_MS[match[2]]
    if delay_ms > DELAY_MAX_MS:
        raise ValueError(f"{text!r} is more than ten years: write a shorter time")
    return delay_ms


def parse_patience_ms(text: str) -> int:
    """Milliseconds to wait: as `parse_delay_ms`, or a number of seconds without a unit.

    Raises:
        ValueError: it is none, or no time at all.
    """
    is_plain = _SECONDS.fullmatch(text)
    patience_ms = round(float(text) * 1_000) if is_plain else parse_delay_ms(text)
    if patience_ms < 1:
        raise ValueError(f"{text!r} is less than 1 ms")
    return patience_ms


def parse_time_ms(text: str) -> int:
    """Unix milliseconds of a date and time (ISO 8601), or of Unix milliseconds.

    A date and time without a zone is local time.

    Raises:
        ValueError: neither of these.
    """
    if _UNIX_MS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time: write one such as 2026-01-31T12:00 or Unix milliseconds"
        ) from None
    return _unix_ms(moment, text)


def _unix_ms(moment: datetime, text: str) -> int:
    """Raises ValueError: it is local, and in an hour in which clocks are set forward or back."""
    if moment.tzinfo is None:
        first, second = (moment.replace(fold=fold).astimezone() for fold in (0, 1))
        if first != second:
            is_twice = first.replace(tzinfo=None) == moment
            what = (
                "comes twice: clocks are set back then"
                if is_twice
                else "never comes: clocks are set forward then"
            )
            choices = " or ".join(each.isoformat() for each in sorted((first, second)))
            raise ValueError(f"the local time {text!r} {what}; write {choices}")
        moment = first
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def delay_argument(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | None:
    """The click callback of an option that takes a length of time; in ms."""
    try:
        return None if value is None else parse_delay_ms(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


def patience_argument(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    """The click callback of an option that takes a time to wait; in seconds."""
    try:
        return None if value is None else parse_patience_ms(value) / 1_000
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


def time_argument(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | None:
    """The click callback of an option that takes a date and time; in Unix ms."""
    try:
        return None if value is None else parse_time_ms(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


def moment_argument(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> Moment | None:
    """The click callback of an option that takes a point in a queue."""
    if value is None:
        return None
    try:
        return parse_moment(value, now_ms=SystemClock().now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


def timestamp_text(timestamp_ms: int) -> str:
    """Local time with milliseconds and its offset, as options take it, so that it means one moment
    only; `-` for 0 and less, which mean never."""
    if timestamp_ms <= 0:
        return "-"
    moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return moment.astimezone().isoformat(sep=" ", timespec="milliseconds")


def without_milliseconds(text: str) -> str:
    """What `timestamp_text` made, for a narrow terminal."""
    return _MILLISECONDS.sub("", text)
