"""Medians of the measurements, ours beside the peers': for people, for scripts, for a page."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from peers.parts import Answer, NamedPart, Way

OURS = "Aerobee"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: the value it takes from each answer. For rates more is better, for times less."""

    name: str
    part: str
    value: Callable[[Answer], float]
    more_is_better: bool = True


def figures_of(named: NamedPart) -> Iterator[Figure]:
    """The rows of one part."""
    name, way = named.name, named.part.way
    if way is Way.GATHER:
        yield Figure(f"{name}, memory, KiB", name, lambda one: one.server_bytes_each / 1024, False)
        yield Figure(f"{name}, server's CPU, µs", name, lambda one: one.server_us, False)
        return
    if way is Way.IDLE:
        yield Figure(f"{name}, server's CPU, % of a core", name, _server_percent, False)
        return
    is_timed = way in (Way.STEADY, Way.PACED)
    if not is_timed:
        yield Figure(f"{name}, messages/s", name, lambda one: one.messages_per_s)
    if is_timed or (way is Way.SINGLE and named.part.in_flight == 1):
        yield Figure(f"{name}, p50, µs", name, lambda one: one.p50_us, False)
        yield Figure(f"{name}, p99, µs", name, lambda one: one.p99_us, False)
    yield Figure(f"{name}, server's CPU, µs", name, lambda one: one.server_us, False)
    if named.is_on_one_core:
        yield Figure(f"{name}, capacity for each core, messages/s", name, _capacity)


def _server_percent(answer: Answer) -> float:
    return answer.server_us * answer.sent / answer.elapsed_s / 1e4


def _capacity(answer: Answer) -> float:
    """The capacity of a dedicated server core."""
    return 1e6 / answer.server_us if answer.server_us else 0.0


@dataclass(slots=True)
class Comparison:
    """All answers of all rounds, by part and system."""

    titles: list[str]
    parts: list[NamedPart] = field(default_factory=list)
    answers: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)

    def add(self, title: str, named: NamedPart, answer: Answer) -> None:
        if not named.name:
            return
        if named not in self.parts:
            self.parts.append(named)
        self.answers.setdefault((named.name, title), []).append(answer)

    def as_json(self) -> str:
        rows = [
            {"part": part, "system": title, "rounds": [asdict(answer) for answer in answers]}
            for (part, title), answers in self.answers.items()
        ]
        return json.dumps({"rows": rows})

    def as_markdown(self) -> str:
        """The table of docs/performance.md."""
        lines = [["", *self.titles, "ours / the best"], ["---"] * (len(self.titles) + 2)]
        lines += [[name, *values, ratio] for name, values, ratio in self._rows()]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def print_table(self, console: Console) -> None:
        table = Table(title="medians of all rounds", title_justify="left")
        table.add_column("")
        for title in (*self.titles, "ours / the best"):
            table.add_column(title, justify="right")
        for name, values, ratio in self._rows():
            table.add_row(name, *values, ratio)
        console.print(table)

    def _rows(self) -> Iterator[tuple[str, list[str], str]]:
        for named in self.parts:
            for figure in figures_of(named):
                medians = {
                    title: statistics.median(map(figure.value, answers))
                    for title in self.titles
                    if (answers := self.answers.get((figure.part, title)))
                }
                values = [
                    _rounded(medians[title]) if title in medians else "" for title in self.titles
                ]
                yield figure.name, values, _ratio(figure, medians)


def _ratio(figure: Figure, medians: dict[str, float]) -> str:
    """Ours relative to the best peer; empty if either is missing."""
    peers = [value for title, value in medians.items() if title != OURS]
    if OURS not in medians or not peers:
        return ""
    best = max(peers) if figure.more_is_better else min(peers)
    return f"{medians[OURS] / best:.2f}" if best else ""


def _rounded(value: float) -> str:
    """Three significant digits."""
    if value >= 100_000:
        return f"{round(value, -3):,.0f}"
    if value >= 1_000:
        return f"{round(value, -2):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
