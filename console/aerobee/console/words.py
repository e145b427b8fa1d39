"""Numbers, times and sizes as pages show them; what is not known is said to be unknown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from markupsafe import Markup

from aerobee.runtime.printable import printable

UNKNOWN: Final = Markup('<span class="unknown">unknown</span>')
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_S: Final = 86_400
KIB: Final = 1_024


def number(value: int | None) -> str:
    """With separators."""
    return UNKNOWN if value is None else f"{value:,}"


def counted(value: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def length(length_ms: int | float | None) -> str:
    """How long something lasts, in its two largest units."""
    if length_ms is None:
        return UNKNOWN
    if length_ms < 1_000:
        return f"{length_ms:.0f} ms"
    seconds = int(length_ms // 1_000)
    if seconds < 60:
        return f"{seconds} s"
    units = (("d", _DAY_S), ("h", 3_600), ("min", 60), ("s", 1))
    for place, (unit, size) in enumerate(units[:-1]):
        if seconds >= size:
            smaller, smaller_size = units[place + 1]
            rest = seconds % size // smaller_size
            first = f"{seconds // size:,} {unit}"
            return f"{first} {rest} {smaller}" if rest else first
    raise AssertionError(seconds)


def age(age_ms: int | None) -> str:
    """Of the oldest unread message; `-` if there is none."""
    return "-" if age_ms == 0 else length(age_ms)


def moment(timestamp_ms: int | None) -> str:
    """A time in UTC, to the millisecond; `-` for 0 and less, which mean never."""
    if timestamp_ms is None:
        return UNKNOWN
    if timestamp_ms <= 0:
        return "-"
    try:
        when = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms after 1970"
    text = f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1_000:03} UTC"
    return Markup('<time datetime="{}">{}</time>').format(
        when.isoformat(timespec="milliseconds"), text
    )


def size(size_bytes: int | None) -> str:
    """In the largest unit that leaves at least 1."""
    if size_bytes is None:
        return UNKNOWN
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < KIB:
            break
        value, unit = value / KIB, larger
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def shown(text: object) -> str:
    """A text of others on one line: characters that could hide or turn it are escapes."""
    return printable(str(text))
