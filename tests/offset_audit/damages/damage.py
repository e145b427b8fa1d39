"""What a damage is: something done to one thing, and the one finding that must come of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Expected:
    """The finding: what it must say. None where the finding has no such place."""

    check: str
    severity: str
    topic: str | None = None
    queue_id: int | None = None
    group: str | None = None
    affected: int | None = None
    says: str = ""
    """Words of its evidence."""


@dataclass(frozen=True, slots=True)
class StoreDamage:
    """Done to a copy of a store, which is then called as the damage."""

    name: str
    do: Callable[[Path], object]
    expected: Expected


def told(findings: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Findings above INFO as what can be compared."""
    return Counter(
        (
            one["broker_name"],
            one["check"],
            one["severity"],
            one["topic"],
            one["queue_id"],
            one["group"],
            one["affected"],
        )
        for one in findings
        if one["severity"] != "INFO"
    )


def wanted(name: str | None, expected: Expected) -> tuple[Any, ...]:
    """What `told` must have of a damage done to broker `name`."""
    return (
        name,
        expected.check,
        expected.severity,
        expected.topic,
        expected.queue_id,
        expected.group,
        expected.affected,
    )
