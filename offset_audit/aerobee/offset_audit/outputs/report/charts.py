"""Lines over time as SVG that fits any width without a script: x in percent, y in pixels.

Text keeps its size on a phone because only the lines are stretched, not the letters. Lines differ
in colour, dashes and marks, so that they can be told apart without colours.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from aerobee.offset_audit.outputs.report.formats import clock_label
from aerobee.offset_audit.outputs.report.markup import Markup, joined, tag

PLOT_HEIGHT = 210
_TOP = 12
_WIDE = 1000
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


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    scale_of: Callable[[Sequence[float]], Scale],
    write: Callable[[float], str],
    axis: str,
) -> Markup:
    """A figure. `label` describes it for screen readers; `axis` names the y values and their unit;
    `write` formats one value."""
    values = [value for one in series for _, value in one.points if value is not None]
    times = sorted({time_ms for one in series for time_ms, _ in one.points})
    scale = scale_of(values)
    begin, end = (times[0], times[-1]) if times else (0, 0)
    place = _Place(begin, max(end - begin, 1), scale, len(times) == 1)
    plot = tag(
        "svg",
        _grid(scale),
        tag(
            "svg",
            *(_line(one, index, place) for index, one in enumerate(series)),
            class_="lines",
            viewBox=f"0 0 {_WIDE} {PLOT_HEIGHT}",
            preserveAspectRatio="none",
            width="100%",
            height=PLOT_HEIGHT,
        ),
        *(mark for index, one in enumerate(series) for mark in _marks(one, index, place)),
        class_="plot",
        width="100%",
        height=PLOT_HEIGHT,
        aria_hidden="true",
    )
    note = f"{axis}{', logarithmic' if scale.is_log else ''}, by time of the run (UTC)"
    return tag(
        "div",
        tag("div", note, class_="axis-name"),
        tag("div", _y_axis(scale, write), plot, _x_axis(times, place), class_="chart-grid"),
        class_="chart",
        role="img",
        tabindex="0",
        aria_label=f"{label}. {_said(series, write)}",
        data_series=_for_script(series, write, place),
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


def _grid(scale: Scale) -> Markup:
    place = _Place(0, 1, scale, False)
    return joined(
        *(
            tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid")
            for y in (f"{place.down(tick):.1f}" for tick in scale.ticks)
        )
    )


def _y_axis(scale: Scale, write: Callable[[float], str]) -> Markup:
    place = _Place(0, 1, scale, False)
    return tag(
        "svg",
        *(
            tag(
                "text",
                write(tick) if tick else "0",
                x="100%",
                y=f"{place.down(tick) + 4:.1f}",
                text_anchor="end",
            )
            for tick in scale.ticks
        ),
        class_="y-axis",
        height=PLOT_HEIGHT + 4,
        aria_hidden="true",
    )


def _x_axis(times: Sequence[int], place: _Place) -> Markup:
    if place.is_single or not times:
        ticks = list(times)
    else:
        ticks = [place.begin + place.span * index // 4 for index in range(5)]
    texts = []
    for index, time_ms in enumerate(ticks):
        at = place.across(time_ms)
        anchor = "middle" if 0 < at < 1 else "start" if at == 0 else "end"
        texts.append(
            tag(
                "text",
                clock_label(time_ms, 0 if place.is_single else place.span),
                x=f"{at * 100:.2f}%",
                y="14",
                text_anchor=anchor,
                class_="minor" if index % 2 else None,
            )
        )
    return tag("svg", *texts, class_="x-axis", width="100%", height="18", aria_hidden="true")


def _runs_of_values(series: Series) -> Iterable[list[tuple[int, float]]]:
    """Pieces of a line: it is broken where a value is unknown."""
    piece: list[tuple[int, float]] = []
    for time_ms, value in series.points:
        if value is None:
            if piece:
                yield piece
            piece = []
        else:
            piece.append((time_ms, value))
    if piece:
        yield piece


def _line(series: Series, index: int, place: _Place) -> Markup:
    steps = []
    for piece in _runs_of_values(series):
        for position, (time_ms, value) in enumerate(piece):
            letter = "L" if position else "M"
            steps.append(f"{letter}{place.across(time_ms) * _WIDE:.1f} {place.down(value):.1f}")
    return tag("path", d=" ".join(steps), class_=f"line series-{index}") if steps else Markup()


def _marks(series: Series, index: int, place: _Place) -> Iterable[Markup]:
    """A dot where a line ends, and for a single value."""
    for piece in _runs_of_values(series):
        time_ms, value = piece[-1]
        if time_ms == series.points[-1][0] or len(piece) == 1:
            yield tag(
                "circle",
                cx=f"{place.across(time_ms) * 100:.2f}%",
                cy=f"{place.down(value):.1f}",
                r="4",
                class_=f"mark series-{index}",
            )


def _said(series: Sequence[Series], write: Callable[[float], str]) -> str:
    """First, greatest and last value of each line, for screen readers."""
    said = []
    for one in series:
        values = [value for _, value in one.points if value is not None]
        if values:
            first, last, top = write(values[0]), write(values[-1]), write(max(values))
            said.append(f"{one.label}: from {first} to {last}, at most {top}")
        else:
            said.append(f"{one.label}: not known")
    return ". ".join(said)


def _for_script(series: Sequence[Series], write: Callable[[float], str], place: _Place) -> str:
    """What pointing at the chart shows: where each moment is, and each line's value there."""
    times = sorted({time_ms for one in series for time_ms, _ in one.points})
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


def sparkline(points: Sequence[tuple[int, float | None]]) -> Markup:
    """A line without axes, for a table. Screen readers skip it: the row has the numbers."""
    values = [value for _, value in points if value is not None]
    if len(values) < 2:
        return Markup()
    top = max([*values, 1.0])
    begin, span = points[0][0], max(points[-1][0] - points[0][0], 1)
    steps = []
    is_open = False
    for time_ms, value in points:
        if value is None:
            is_open = False
            continue
        x, y = (time_ms - begin) / span * 100, 22 - max(value, 0) / top * 20
        steps.append(f"{'L' if is_open else 'M'}{x:.1f} {y:.1f}")
        is_open = True
    return tag(
        "svg",
        tag("path", d=" ".join(steps), class_="line"),
        class_="spark",
        viewBox="0 0 100 24",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def legend(labels: Sequence[str]) -> Markup:
    """Which line belongs to what: colour and dashes as in the chart."""
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag(
                    "svg",
                    tag("line", x1="0", x2="30", y1="6", y2="6", class_=f"line series-{index}"),
                    width="30",
                    height="12",
                    aria_hidden="true",
                ),
                tag("bdi", label, class_="name"),
            )
            for index, label in enumerate(labels)
        ),
        class_="legend",
    )
