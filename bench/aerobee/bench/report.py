"""The figures of one run: as a table for people, as JSON for scripts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from aerobee.bench.measure import Latencies, Throughput


@dataclass(frozen=True, slots=True)
class Row:
    """One measured thing. `ratio` is against the bare stream measured in the same run."""

    name: str
    throughput: Throughput | None = None
    latencies: Latencies | None = None
    ratio: float | None = None
    ratio_of: str = ""
    note: str = ""

    def as_json(self) -> dict[str, object]:
        entry: dict[str, object] = {"name": self.name}
        if self.throughput is not None:
            entry |= {
                "messages": self.throughput.messages,
                "elapsed_s": round(self.throughput.elapsed_s, 4),
                "messages_per_s": round(self.throughput.messages_per_s),
                "mb_per_s": round(self.throughput.mb_per_s, 1),
                "broker_cpu_s_per_million": self.throughput.broker_cpu_s_per_million,
            }
        if self.latencies is not None:
            entry["latencies"] = asdict(self.latencies)
        if self.ratio is not None:
            entry |= {"ratio": round(self.ratio, 3), "ratio_of": self.ratio_of}
        if self.note:
            entry["note"] = self.note
        return entry


@dataclass(slots=True)
class Report:
    """Rows in the order of measurement."""

    title: str
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> Row:
        self.rows.append(row)
        return row

    def as_json(self) -> str:
        return json.dumps({"title": self.title, "rows": [row.as_json() for row in self.rows]})

    def print_table(self, console: Console) -> None:
        table = Table(title=self.title, title_justify="left")
        table.add_column("what")
        for column in ("messages/s", "MB/s", "p50 µs", "p99 µs", "p99.9 µs", "CPU s/M", "ratio"):
            table.add_column(column, justify="right")
        table.add_column("of")
        for row in self.rows:
            table.add_row(row.name, *_figures(row))
        console.print(table)


def _figures(row: Row) -> list[str]:
    rate, latencies = row.throughput, row.latencies
    cpu = rate.broker_cpu_s_per_million if rate is not None else None
    return [
        f"{rate.messages_per_s:,.0f}" if rate else "",
        f"{rate.mb_per_s:,.1f}" if rate else "",
        f"{latencies.p50_us:,.0f}" if latencies else "",
        f"{latencies.p99_us:,.0f}" if latencies else "",
        f"{latencies.p999_us:,.0f}" if latencies else "",
        f"{cpu:.2f}" if cpu is not None else "",
        f"{row.ratio:.2f}" if row.ratio is not None else "",
        row.ratio_of or row.note,
    ]
