"""Numbers, ages and times for people. None means "not known"."""

from __future__ import annotations

from datetime import UTC, datetime

NOT_KNOWN = "not known"
_WRITTEN_OUT = 10_000
"""From here on thousands are written as k."""
_AGES = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def number(value: int | None) -> str:
    """12,345, as in the evidence and on a terminal."""
    return NOT_KNOWN if value is None else f"{value:,}"


def short(value: float) -> str:
    """At most four digits: 950, 2,000, 12.3 k, 34 M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= max(size, _WRITTEN_OUT):
            scaled = f"{value / size:.1f}".removesuffix(".0")
            return f"{scaled if len(scaled) <= 4 else round(value / size)}\N{NO-BREAK SPACE}{unit}"
    return number(int(value)) if value == int(value) else f"{value:g}"


def volume(size: int) -> str:
    """Bytes: 950 B, 12.3 kB, 734 MB."""
    text = short(size)
    return f"{text}B" if abs(size) >= _WRITTEN_OUT else f"{text}\N{NO-BREAK SPACE}B"


def age(duration_ms: float | None, *, space: str = "\N{NO-BREAK SPACE}") -> str:
    """The two largest units: 3 d 4 h, 12 s, 40 ms. `space` goes between number and unit."""
    if duration_ms is None:
        return NOT_KNOWN
    if duration_ms < 0:
        return f"\N{MINUS SIGN}{age(-duration_ms, space=space)}"
    if duration_ms < 1_000:
        return f"{duration_ms:g}{space}ms"
    parts: list[str] = []
    rest = int(duration_ms)
    for unit, size in _AGES:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{space}{unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def counted(count: int, one: str, many: str = "") -> str:
    """1 queue, 2 queues."""
    return f"{number(count)}\N{NO-BREAK SPACE}{one if count == 1 else many or one + 's'}"


def utc(time_ms: int) -> datetime | None:
    """None for a moment that no calendar has: damaged bytes may contain anything."""
    try:
        return datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def clock_label(time_ms: int, span_ms: int) -> str:
    """A tick of a time axis that is `span_ms` long."""
    when = datetime.fromtimestamp(time_ms / 1000, UTC)
    if span_ms > 3 * 86_400_000:
        return f"{when:%d %b}"
    if span_ms > 600_000:
        return f"{when:%H:%M}" if span_ms <= 86_400_000 else f"{when:%d %b %H:%M}"
    return f"{when:%H:%M:%S}"
