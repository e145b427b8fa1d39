"""What Prometheus would see: one scrape, as values."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def fetch(address: str, *, accept: str = "") -> tuple[str, str]:
    """The text and its content type; blocks."""
    request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


class Scrape:
    """The series of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.kinds: dict[str, str] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.kinds[sample.name] = family.type
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.series, f"{key} is there twice"
                self.series[key] = sample.value

    @classmethod
    def of(cls, address: str) -> Scrape:
        """Blocks."""
        return cls(fetch(address)[0])

    def names(self) -> set[str]:
        return {name for name, _ in self.series}

    def rows(self, name: str, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
        """The series of a name that have these labels."""
        wanted = set(labels.items())
        return {found: value for (one, found), value in self.series.items()
                if one == name and wanted <= found}  # fmt: skip

    def get(self, name: str, **labels: str) -> float | None:
        """The only series with these labels; None if there is none."""
        rows = self.rows(name, **labels)
        assert len(rows) <= 1, rows
        return next(iter(rows.values()), None)

    def total(self, name: str, **labels: str) -> float:
        return sum(self.rows(name, **labels).values())
