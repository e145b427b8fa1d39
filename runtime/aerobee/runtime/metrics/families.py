"""Metrics as values at one moment: what a service gives to the thread that writes them out.

Invariant: an unknown value is absent, so it is never taken for zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from aerobee.runtime.metrics.histogram import HistogramCounts

OTHER = "_other"
"""The label value for everything beyond a limit. A client's topic or group is unlikely to have this
name; if one does, it is added to the rest."""


class Kind(StrEnum):
    """Prometheus's types of metrics with a single number."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(slots=True, eq=False)
class Family:
    """One metric. Names of counters end in `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    rows: list[tuple[tuple[str, ...], float]] = field(default_factory=list)

    def add(self, value: float | None, *label_values: str) -> None:
        """None: unknown, so not shown."""
        assert len(label_values) == len(self.labels), (self.name, label_values)
        if value is not None:
            self.rows.append((label_values, value))


@dataclass(slots=True, eq=False)
class HistogramFamily:
    """One metric made of histograms."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    rows: list[tuple[tuple[str, ...], HistogramCounts]] = field(default_factory=list)

    def add(self, counts: HistogramCounts, *label_values: str) -> None:
        assert len(label_values) == len(self.labels), (self.name, label_values)
        self.rows.append((label_values, counts))


AnyFamily = Family | HistogramFamily


def counter(name: str, help_text: str, *labels: str) -> Family:
    assert name.endswith("_total"), name
    return Family(name, Kind.COUNTER, help_text, labels)


def gauge(name: str, help_text: str, *labels: str) -> Family:
    return Family(name, Kind.GAUGE, help_text, labels)


def one_counter(name: str, help_text: str, value: float | None) -> Family:
    """A counter of a single series."""
    family = counter(name, help_text)
    family.add(value)
    return family


def one_gauge(name: str, help_text: str, value: float | None) -> Family:
    """A gauge of a single series; None: unknown."""
    family = gauge(name, help_text)
    family.add(value)
    return family


def flag(text: bool) -> str:
    """A boolean as a label value."""
    return "true" if text else "false"


class Gathered:
    """What a service knows about itself at one moment. Every series has `labels`."""

    __slots__ = ("families", "labels")

    def __init__(self, labels: Mapping[str, str], families: Sequence[AnyFamily]) -> None:
        self.labels = labels
        self.families = families
