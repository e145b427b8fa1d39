"""Lines over time, placed for an SVG that fits any width without a script: x in percent, y in
pixels. Text keeps its size on a phone because only the lines are stretched, not the letters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from aerobee.offset_audit.outputs.report.formats import clock_label

PLOT_HEIGHT = 210
_TOP = 12
WIDE = 1_000
_LOG_FROM_RATIO = 50
_AGE_TICKS = (1e3, 1e4, 6e4, 6e5, 3.6e6, 3.6e7, 8.64e7, 8.64e8, 8.64e9)
"""1 s, 10 s, 1 min, 10 min, 1 h, 10 h, 1 d, 10 d, 100 d."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line: (time in ms, value or None) in time order."""

    label: str
    points: tuple[tuple[int, float | None], ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 up to `top`; logarithmic if series of very different size share it (0 stays 0)."""

    top: float
    is_log: bool
    ticks: tuple[float, ...]
    unit: float = 1.0
    """Where a logarithmic scale turns linear, towards 0."""

    def share(self, value: float) -> float:
        """0 at the bottom, 1 at the top."""
        bounded = min(max(value, 0.0), self.top)
        if self.is_log:
            return math.log1p(bounded / self.unit) / math.log1p(self.top / self.unit)
        return bounded / self.top


def nice_scale(values: Sequence[float], *, bases: Sequence[float] = (1, 2, 5, 10)) -> Scale:
    """Ticks on round numbers; at most six."""
    largest = max([*values, 1.0])
    positive = [value for value in values if value > 0]
    if positive and largest / min(positive) >= _LOG_FROM_RATIO:
        exponent = math.ceil(math.log10(largest))
        step = max(1, math.ceil(exponent / 5))
        powers = range(exponent, 0, -step)
        return Scale(10.0**exponent, True, (0.0, *sorted(10.0**power for power in powers)))
    raw = largest / 4
    size = 10.0 ** math.floor(math.log10(raw)) if raw >= 1 else 1.0
    step_size = next(base * size for base in bases if base * size >= raw)
    count = math.ceil(largest / step_size)
    return Scale(count * step_size, False, tuple(step_size * index for index in range(count + 1)))


def age_scale(values: Sequence[float]) -> Scale:
    """Like `nice_scale`, on seconds, minutes, hours and days."""
    largest = max([*values, 1_000.0])
    positive = [value for value in values if value > 0]
    if positive and largest / min(positive) >= _LOG_FROM_RATIO:
        above = [tick for tick in _AGE_TICKS if tick < largest]
        top = next((tick for tick in _AGE_TICKS if tick >= largest), largest)
        ticks = (*above, top)
        return Scale(top, True, (0.0, *ticks[(len(ticks) + 1) % 2 :: 2]), 1_000.0)
    for unit in (1_000, 60_000, 3_600_000, 86_400_000):
        for base in (1, 2, 5, 10, 15, 30):
            step = float(unit * base)
            if largest <= step * 5 and not (unit == 3_600_000 and base > 10):
                count = math.ceil(largest / step)
                return Scale(count * step, False, tuple(step * i for i in range(count + 1)))
    days = nice_scale([largest / 86_400_000])
    return Scale(days.top * 8.64e7, False, tuple(tick * 8.64e7 for tick in days.ticks))


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure's parts, in the order in which they are drawn."""

    note: str
    """The y values and their unit."""
    said: str
    """First, greatest and last value of each line, for screen readers."""
    for_script: str
    """What pointing at the chart shows: where each moment is, and each line's value there."""
    rows: tuple[tuple[float, str], ...]
    """Ticks of the y axis: place and text."""
    columns: tuple[tuple[float, str, str], ...]
    """Ticks of the x axis: place, text, and which end of the text is there."""
    lines: tuple[tuple[int, str], ...]
    """By number of its series, the path of each line."""
    marks: tuple[tuple[int, float, float], ...]
    """Dots where a line ends, and for a single value."""


def line_chart(
    series: Sequence[Series],
    *,
    scale_of: Callable[[Sequence[float]], Scale],
    write: Callable[[float], str],
    axis: str,
) -> Chart:
    """`axis` names the y values and their unit; `write` formats one value."""
    values = [value for one in series for _, value in one.points if value is not None]
    times = sorted({time_ms for one in series for time_ms, _ in one.points})
    scale = scale_of(values)
    begin, end = (times[0], times[-1]) if times else (0, 0)
    place = _Place(begin, max(end - begin, 1), scale, len(times) == 1)
    return Chart(
        f"{axis}{', logarithmic' if scale.is_log else ''}, by time of the run (UTC)",
        _said(series, write),
        _for_script(series, times, write, place),
        tuple((place.down(tick), write(tick) if tick else "0") for tick in scale.ticks),
        tuple(_columns(times, place)),
        tuple((n, path) for n, one in enumerate(series) if (path := _path(one, place))),
        tuple((n, *mark) for n, one in enumerate(series) for mark in _marks(one, place)),
    )


@dataclass(frozen=True, slots=True)
class _Place:
    begin: int
    span: int
    scale: Scale
    is_single: bool

    def across(self, time_ms: int) -> float:
        """0 to 1; a single moment is in the middle."""
        return 0.5 if self.is_single else (time_ms - self.begin) / self.span

    def down(self, value: float) -> float:
        return _TOP + (1 - self.scale.share(value)) * (PLOT_HEIGHT - _TOP - 1)


def _columns(times: Sequence[int], place: _Place) -> Iterator[tuple[float, str, str]]:
    ticks = list(times)
    if times and not place.is_single:
        ticks = [place.begin + place.span * index // 4 for index in range(5)]
    for time_ms in ticks:
        at = place.across(time_ms)
        anchor = "middle" if 0 < at < 1 else "start" if at == 0 else "end"
        yield at * 100, clock_label(time_ms, 0 if place.is_single else place.span), anchor


def _runs_of_values(series: Series) -> Iterator[list[tuple[int, float]]]:
    """Pieces of a line: it is broken where a value is unknown."""
    piece: list[tuple[int, float]] = []
    for time_ms, value in (*series.points, (0, None)):
        if value is not None:
            piece.append((time_ms, value))
        elif piece:
            yield piece
            piece = []


def _path(series: Series, place: _Place) -> str:
    return " ".join(
        f"{'L' if n else 'M'}{place.across(time_ms) * WIDE:.1f} {place.down(value):.1f}"
        for piece in _runs_of_values(series)
        for n, (time_ms, value) in enumerate(piece)
    )


def _marks(series: Series, place: _Place) -> Iterator[tuple[float, float]]:
    for piece in _runs_of_values(series):
        time_ms, value = piece[-1]
        if time_ms == series.points[-1][0] or len(piece) == 1:
            yield place.across(time_ms) * 100, place.down(value)


def _said(series: Sequence[Series], write: Callable[[float], str]) -> str:
    said = []
    for one in series:
        values = [value for _, value in one.points if value is not None]
        if values:
            first, last, top = write(values[0]), write(values[-1]), write(max(values))
            said.append(f"{one.label}: from {first} to {last}, at most {top}")
        else:
            said.append(f"{one.label}: not known")
    return ". ".join(said)


def _for_script(
    series: Sequence[Series], times: Sequence[int], write: Callable[[float], str], place: _Place
) -> str:
    columns = [dict(one.points) for one in series]
    return json.dumps(
        {
            "labels": [one.label for one in series],
            "times": times,
            "at": [round(place.across(time_ms), 4) for time_ms in times],
            "values": [
                [None if (value := column.get(time)) is None else write(value) for time in times]
                for column in columns
            ],
        },
        separators=(",", ":"),
    )


def sparkline(points: Sequence[tuple[int, float | None]]) -> str:
    """The path of a line without axes, 100 wide and 24 high; empty without two values."""
    values = [value for _, value in points if value is not None]
    if len(values) < 2:
        return ""
    top, begin, span = max([*values, 1.0]), points[0][0], max(points[-1][0] - points[0][0], 1)
    return " ".join(
        f"{'L' if n else 'M'}{(time_ms - begin) / span * 100:.1f} "
        f"{22 - max(value, 0) / top * 20:.1f}"
        for piece in _runs_of_values(Series("", tuple(points)))
        for n, (time_ms, value) in enumerate(piece)
    )
