"""Evaluates a rule on judged rows without Spark: the same texts, row by row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from aerobee.offset_audit.rules.expressions import Row, Value, long_or_none, read
from aerobee.offset_audit.rules.limits import Limits
from aerobee.offset_audit.rules.rule import PLACE, SEEN_BY, Rule, numbers_of
from aerobee.offset_audit.rules.texts import command_text

_AGGREGATE: Final = re.compile(
    r"\b(count|try_sum|max|min|bool_or|bool_and)\((?P<inside>(?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)"
)
_ONLY: Final = ("broker_name", "broker_id", "role", "epoch")
"""Columns of a finding that are filled if all its queues agree on the broker."""


def findings_of(rule: Rule, rows: Iterable[Row], limits: Limits) -> list[dict[str, Any]]:
    """One finding for each group of queues that have the rule's trouble, as rows of FINDINGS."""
    numbers = numbers_of(limits)
    asked_of = read(rule.asked_of.format(**numbers)) if rule.asked_of else _always
    added = {name: read(text.format(**numbers)) for name, text in rule.added.items()}
    holds = read(rule.holds.format(**numbers))
    troubled: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for given in rows:
        if asked_of(given) is not True:
            continue
        row = dict(given)
        for name, value in added.items():
            row[name] = value(row)
        if holds(row) is True:
            troubled.setdefault(tuple(row[name] for name in rule.by), []).append(row)
    return [_finding(rule, key, queues) for key, queues in troubled.items()]


def _always(_: Row) -> bool:
    return True


def _finding(rule: Rule, key: tuple[Any, ...], queues: Sequence[dict[str, Any]]) -> dict[str, Any]:
    measure = read(rule.measure)
    # As Spark orders a struct: unknown values come first.
    worst = max(
        queues,
        key=lambda row: (
            *_ordered(measure(row)),
            *_ordered(row["queue_id"]),
            *_ordered(row["broker_name"]),
        ),
    )
    told: dict[str, Any] = {
        "worst": {name: worst[name] for name in dict.fromkeys((*PLACE, *rule.keep))},
        "queues": len(queues),
        "queue_id": queues[0]["queue_id"] if len(queues) == 1 else None,
        "seen_by": _aggregated(SEEN_BY, queues),
        **dict(zip(rule.by, key, strict=True)),
    }
    is_one_broker = len({row["broker_name"] for row in queues}) == 1
    for name in _ONLY:
        known = [row[name] for row in queues if row[name] is not None]
        told[name] = min(known) if known and is_one_broker else None
    told |= {name: _aggregated(text, queues) for name, text in rule.sums.items()}
    told.setdefault("topic", None)
    told |= {name: read(text)(told) for name, text in rule.columns.items()}
    return {
        **{name: told.get(name) for name in ("cluster", *PLACE, "group", "affected")},
        "check": rule.name,
        "severity": str(rule.severity),
        "evidence": read(rule.evidence)(told),
        "command": read(command_text(rule.command, rule.commands))(told),
    }


def _ordered(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


def _aggregated(text: str, rows: Sequence[Row]) -> Any:
    """An expression of aggregates: these are computed first, and replaced by columns."""
    found: dict[str, Any] = {}

    def column(match: re.Match[str]) -> str:
        name = f"aggregate_{len(found)}"
        found[name] = _aggregate(match[1], match["inside"], rows)
        return name

    rest = _AGGREGATE.sub(column, text)
    return read(rest)(found)


def _aggregate(name: str, inside: str, rows: Sequence[Row]) -> Any:
    distinct = inside.removeprefix("distinct ")
    value: Value = read(distinct)
    known = [one for row in rows if (one := value(row)) is not None]
    if name == "count":
        return len(set(known)) if distinct != inside else len(known)
    return _AGGREGATES[name](known) if known else None


_AGGREGATES: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "try_sum": lambda known: long_or_none(sum(known)),
    "max": max,
    "min": min,
    "bool_or": any,
    "bool_and": all,
}
