"""How the demo shows that it is at work: bars on a terminal, plain lines elsewhere.

One interface, two faces; both are told the same facts, so a log file of the demo says what the
terminal showed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from aerobee.runtime.clock import Clock

PLAIN_INTERVAL_S = 2.0


@dataclass(frozen=True, slots=True)
class Gauge:
    """One thing that grows, towards a total if that is known."""

    name: str
    total: int | None


class Display(Protocol):
    """What the demo tells while it runs."""

    def say(self, text: str) -> None:
        """An event, once."""
        ...

    def update(self, values: Sequence[int], notes: Sequence[str]) -> None:
        """The gauges' values and a short remark on each, in the order they were given."""
        ...


@contextmanager
def opened_display(console: Console, gauges: Sequence[Gauge], clock: Clock) -> Iterator[Display]:
    """Bars if `console` is a terminal, else lines."""
    if not console.is_terminal:
        yield _Lines(console, gauges, clock)
        return
    progress = Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
        refresh_per_second=8,
    )
    with progress:
        yield _Bars(progress, gauges)


class _Bars:
    def __init__(self, progress: Progress, gauges: Sequence[Gauge]) -> None:
        self._progress = progress
        self._tasks: list[TaskID] = [
            progress.add_task(gauge.name, total=gauge.total, note="") for gauge in gauges
        ]

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def update(self, values: Sequence[int], notes: Sequence[str]) -> None:
        for task, value, note in zip(self._tasks, values, notes, strict=True):
            self._progress.update(task, completed=value, note=note)


class _Lines:
    def __init__(self, console: Console, gauges: Sequence[Gauge], clock: Clock) -> None:
        self._print: Callable[[str], None] = lambda text: console.print(
            text, markup=False, highlight=False, soft_wrap=True
        )
        self._gauges = gauges
        self._clock = clock
        self._shown_s = clock.monotonic_s()

    def say(self, text: str) -> None:
        self._print(text)

    def update(self, values: Sequence[int], notes: Sequence[str]) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._shown_s < PLAIN_INTERVAL_S:
            return
        self._shown_s = now_s
        parts = [
            f"{gauge.name.strip()} {value:,}{f' of {gauge.total:,}' if gauge.total else ''}"
            f"{f' ({note})' if note else ''}"
            for gauge, value, note in zip(self._gauges, values, notes, strict=True)
        ]
        self._print("  " + "; ".join(parts))
