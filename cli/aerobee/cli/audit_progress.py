"""Where an audit is, on standard error: a line for each stage, and what Spark does in it right now.

For a terminal only; elsewhere `PlainProgress` writes one line when a stage ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

REFRESH_S = 0.3

TaskCounts = Callable[[], tuple[int, int]]
"""Spark's tasks: done, and known."""


class BarProgress:
    """Stages with a bar of Spark's tasks; to be entered around the run."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bars = Progress(
            SpinnerColumn(finished_text="[green]✓[/green]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[tasks]}"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._count: TaskCounts | None = None

    @contextmanager
    def shown(self) -> Iterator[BarProgress]:
        """Draw until left."""
        with self._bars:
            yield self

    def ask(self, count: TaskCounts) -> None:
        """From now on a stage shows Spark's tasks."""
        self._count = count

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        bar = self._bars.add_task(title, total=None, tasks="")
        ended = threading.Event()
        drawer = threading.Thread(
            target=self._draw, args=(bar, ended), name="audit-progress", daemon=True
        )
        drawer.start()
        try:
            yield
        finally:
            ended.set()
            drawer.join()
        self._bars.update(bar, total=1, completed=1, tasks="")

    def note(self, text: str) -> None:
        self._bars.console.print(f"  {text}", markup=False, highlight=False)

    def _draw(self, bar: TaskID, ended: threading.Event) -> None:
        while not ended.wait(REFRESH_S):
            if self._count is None:
                continue
            try:
                done, known = self._count()
            except Exception:
                # Spark is going: the stage itself will say why.
                return
            if known:
                self._bars.update(bar, total=known, completed=done, tasks=f"{done}/{known} tasks")
