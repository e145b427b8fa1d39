"""What an audit shows on a terminal: its stages, and the screen of `--watch`.

Stages go to standard error, with what Spark does right now; elsewhere `PlainProgress` writes one
line when a stage ends. The screen is drawn again after each run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from aerobee.runtime.clock import Clock

if TYPE_CHECKING:
    from aerobee.offset_audit.outputs.summary import Summary

SEVERITY_STYLES = {
    "CRITICAL": "bold white on red",
    "ERROR": "bold red",
    "WARNING": "yellow",
    "INFO": "cyan",
}
STATE_STYLES = {"STOPPED": "red", "STUCK": "red", "SLOW": "yellow", "LAGGING": "yellow"}
FRAME_LINES = 10
"""Lines that are no rows: headings, rules, the foot."""

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


class WatchScreen:
    """What is on the screen; `seen` is called after each run."""

    def __init__(self, console: Console, interval_s: int, clock: Clock) -> None:
        self._console = console
        self._interval_s = interval_s
        self._clock = clock
        self._stage = "starting"
        self._done: list[str] = []
        """Stages of the first run, until there is something else to show."""
        self._stage_since_s = clock.monotonic_s()
        self._runs = 0
        self._failures = 0
        self._summary: Summary | None = None
        self._trouble = ""
        # Drawn again by itself, so that one sees for how long a stage has run.
        self._live = Live(
            get_renderable=self.picture, console=console, screen=True, refresh_per_second=2
        )

    @contextmanager
    def shown(self) -> Iterator[WatchScreen]:
        """Own the screen until left; what was there before comes back."""
        with self._live:
            yield self

    def seen(self, summary: Summary | None, trouble: str) -> None:
        """Draw what was found, or that the run failed."""
        self._runs += 1
        self._trouble = trouble
        if summary is not None:
            self._summary = summary
        else:
            self._failures += 1
        self._live.refresh()

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """What the run that is under way does now; the screen is its Progress."""
        self._stage, self._stage_since_s = title, self._clock.monotonic_s()
        try:
            yield
        finally:
            now_s = self._clock.monotonic_s()
            if not self._runs:
                self._done.append(f"{title}: {now_s - self._stage_since_s:.1f} s")
            self._stage, self._stage_since_s = "", now_s

    def note(self, text: str) -> None:
        """The screen shows what was found instead."""

    def picture(self) -> RenderableType:
        """The whole screen, no higher than the terminal."""
        rows = max(6, self._console.height - FRAME_LINES)
        parts: list[RenderableType] = []
        if not self._runs:
            parts += [Text(line) for line in self._done]
        if self._summary is not None:
            parts += _picture(self._summary, rows)
        if self._trouble:
            parts.append(Text(f"last run failed: {self._trouble}", style="bold red"))
        foot = f"run {self._runs}" if self._runs else "the first run is under way"
        since_s = self._clock.monotonic_s() - self._stage_since_s
        if self._stage:
            foot += f"; now: {self._stage} ({since_s:.0f} s)"
        elif self._runs:
            foot += "; waits"
        foot += f"; every {self._interval_s} s, Ctrl-C ends"
        if self._failures:
            foot += f"; {self._failures} failed"
        parts.append(Text(foot, style="dim"))
        return Group(*parts)


def _picture(summary: Summary, rows: int) -> list[RenderableType]:
    from aerobee.offset_audit.outputs.console import counts_line, headline

    head = Text(headline(summary), style="bold")
    verdict = Text(summary.verdict, style=_style(summary))
    findings = min(len(summary.findings), max(3, rows // 2))
    groups = min(len(summary.groups), max(3, rows - findings))
    return [
        head,
        Text(counts_line(summary)),
        verdict,
        *([_findings(summary, findings)] if findings else []),
        *([_groups(summary, groups)] if groups else []),
    ]


def _style(summary: Summary) -> str:
    return "bold green" if summary.worst is None else SEVERITY_STYLES[summary.worst]


def _findings(summary: Summary, rows: int) -> Table:
    from aerobee.offset_audit.outputs.console import where

    table = Table(box=SIMPLE_HEAD, expand=True)
    for name, ratio in (("severity", None), ("check", None), ("where", 2), ("evidence", 4)):
        table.add_column(name, ratio=ratio, no_wrap=True, overflow="ellipsis")
    for finding in summary.findings[:rows]:
        severity = finding["severity"]
        table.add_row(
            Text(severity, style=SEVERITY_STYLES.get(severity, "")),
            Text(finding["check"]),
            Text(where(finding)),
            Text(finding.get("evidence") or ""),
        )
    return table


def _groups(summary: Summary, rows: int) -> Table:
    table = Table(box=SIMPLE_HEAD, expand=True)
    for name, ratio in (("group", 2), ("topic", 2)):
        table.add_column(name, ratio=ratio, no_wrap=True, overflow="ellipsis")
    for name in ("state", "lag", "matching", "oldest", "queues", "members"):
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    for pair in summary.groups[:rows]:
        table.add_row(
            Text(pair["group"]),
            Text(pair["topic"]),
            Text(pair["state"], style=STATE_STYLES.get(pair["state"], "")),
            *(_number(pair.get(name)) for name in ("lag", "matching_lag")),
            _age(pair, summary.judged_at_ms),
            *(_number(pair.get(name)) for name in ("queues", "members")),
        )
    return table


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _age(pair: Mapping[str, Any], now_ms: int) -> str:
    from aerobee.offset_audit.outputs.report.formats import age

    first_unread_ms = pair.get("first_unread_ms")
    if first_unread_ms is None:
        return "-"
    return age(max(0, now_ms - first_unread_ms), space=" ")
