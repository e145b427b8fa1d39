"""Count, rate and progress of long work, on standard error.

On a terminal a bar that moves, with the time left where the end is known; in a pipe nothing, so
that scripts stay quiet. The final figures are for the command to print.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from aerobee.cli.output import counted, is_quiet
from aerobee.runtime.clock import Clock


@dataclass(slots=True)
class Meter:
    """What was done so far."""

    clock: Clock
    started_s: float
    messages: int = 0
    bytes: int = 0
    _progress: Progress | None = field(default=None, repr=False)
    _task: TaskID | None = field(default=None, repr=False)

    def add(self, messages: int, size: int, *, done: float | None = None) -> None:
        """Count some; `done` is the position of the bar, in its total's unit."""
        self.messages += messages
        self.bytes += size
        if self._progress is not None and self._task is not None:
            self._progress.update(
                self._task,
                completed=done,
                counted=f"{counted(self.messages, 'message')}, {self.per_second:,.0f}/s",
            )

    @property
    def elapsed_s(self) -> float:
        return self.clock.monotonic_s() - self.started_s

    @property
    def per_second(self) -> float:
        elapsed_s = self.elapsed_s
        return self.messages / elapsed_s if elapsed_s > 0 else 0.0


@contextlib.contextmanager
def opened_meter(
    description: str, clock: Clock, *, total: float | None, quiet: bool = False
) -> Iterator[Meter]:
    """A running meter; with a `total` of None the bar only shows that it lives."""
    meter = Meter(clock, clock.monotonic_s())
    console = Console(stderr=True)
    if quiet or is_quiet() or not console.is_terminal:
        yield meter
        return
    columns = [SpinnerColumn(), TextColumn("{task.description}")]
    if total is not None:
        columns += [BarColumn(), TaskProgressColumn(), TimeRemainingColumn()]
    columns += [TextColumn("{task.fields[counted]}"), TimeElapsedColumn()]
    with Progress(*columns, console=console, transient=True, refresh_per_second=8) as progress:
        meter._progress = progress
        meter._task = progress.add_task(description, total=total, counted="")
        yield meter
