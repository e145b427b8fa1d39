"""Medians of what was measured, ours beside the peers': for people, for scripts, for a page."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from aerobee.bench.peers.parts import Answer, NamedPart, Way

OURS = "Aerobee"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: what it takes of each answer. Of a rate more is better, of a time less."""

    name: str
    part: str
    value: Callable[[Answer], float]
    more_is_better: bool = True


def figures_of(named: NamedPart) -> Iterator[Figure]:
    """The rows of one part."""
    way = named.part.way
    if way is not Way.STEADY:
        yield Figure(f"{named.name}, messages/s", named.name, lambda answer: answer.messages_per_s)
    if way is Way.STEADY or (way is Way.SINGLE and named.part.in_flight == 1):
        yield Figure(f"{named.name}, p50, µs", named.name, lambda answer: answer.p50_us, False)
        yield Figure(f"{named.name}, p99, µs", named.name, lambda answer: answer.p99_us, False)
    if way is Way.SINGLE and named.part.in_flight > 1:
        yield Figure(
            f"{named.name}, server's CPU, µs", named.name, lambda answer: answer.server_us, False
        )


@dataclass(slots=True)
class Comparison:
    """All answers of all rounds, by part and system."""

    titles: list[str]
    parts: list[NamedPart] = field(default_factory=list)
    answers: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)

    def add(self, title: str, named: NamedPart, answer: Answer) -> None:
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
        lines = [["", *self.titles, "ours to the best"], ["---"] * (len(self.titles) + 2)]
        lines += [[name, *values, ratio] for name, values, ratio in self._rows()]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def print_table(self, console: Console) -> None:
        table = Table(title="medians of all rounds", title_justify="left")
        table.add_column("")
        for title in (*self.titles, "ours to the best"):
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
    """Ours to the best of the peers; nothing without one of them."""
    peers = [value for title, value in medians.items() if title != OURS]
    if OURS not in medians or not peers:
        return ""
    best = max(peers) if figure.more_is_better else min(peers)
    return f"{medians[OURS] / best:.2f}" if best else ""


def _rounded(value: float) -> str:
    """Three digits that mean something."""
    if value >= 100_000:
        return f"{round(value, -3):,.0f}"
    if value >= 1_000:
        return f"{round(value, -2):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
