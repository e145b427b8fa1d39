"""Metrics as values at one moment: what a service hands to the thread that writes them down.

Always holds: a value that is not known is absent, so it is never taken for zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from aerobee.runtime.metrics.histogram import HistogramCounts

OTHER = "_other"
"""The label value of everything beyond a bound. No topic or group of a client is likely to have
this name; one that does is added up with the rest."""


class Kind(StrEnum):
    """Prometheus' types of metrics, as far as single numbers go."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(slots=True, eq=False)
class Family:
    """One metric. Counters' names end in `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    rows: list[tuple[tuple[str, ...], float]] = field(default_factory=list)

    def add(self, value: float | None, *label_values: str) -> None:
        """None: not known, so not shown."""
        assert len(label_values) == len(self.labels), (self.name, label_values)
        if value is not None:
            self.rows.append((label_values, value))


@dataclass(slots=True, eq=False)
class HistogramFamily:
    """One metric of histograms."""

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
    """A gauge of a single series; None: it is not known."""
    family = gauge(name, help_text)
    family.add(value)
    return family


def flag(text: bool) -> str:
    """A truth as a label's value."""
    return "true" if text else "false"


class Gathered:
    """What a service knows of itself at one moment. `labels` are on every series."""

    __slots__ = ("families", "labels")

    def __init__(self, labels: Mapping[str, str], families: Sequence[AnyFamily]) -> None:
        self.labels = labels
        self.families = families
