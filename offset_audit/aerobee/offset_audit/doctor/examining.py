"""The audit's checks that one reading can answer, over rows in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.progress import find_changes, judge
from aerobee.offset_audit.checks.progress.replicas import find_replicas
from aerobee.offset_audit.checks.registry import all_checks
from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.frame import union
from aerobee.offset_audit.frames.local_frame import LocalEngine, LocalFrame
from aerobee.offset_audit.tables import COLUMNS, Tables, empty_tables

Row = dict[str, Any]

CHECKED: Final = (
    "UNREACHABLE",
    "NOT_WRITABLE",
    "CLOCK",
    "ONE_ZONE",
    "REPLICA_GAP",
    "ROUTE",
    "UNCLEAN_ELECTION",
    "LAG",
    "STUCK",
    "STOPPED",
    "OUT_OF_RANGE_LOW",
    "OUT_OF_RANGE_HIGH",
    "ORPHAN",
    "UNCOMMITTED_QUEUE",
    "SAMPLING",
    "QUEUE_BEYOND",
)
"""Checks that need no journal, no earlier run and no file."""
_SEVERITIES: Final = ("CRITICAL", "ERROR", "WARNING", "INFO")


def examined(rows: Mapping[str, Sequence[Mapping[str, Any]]], limits: Limits) -> list[Row]:
    """The findings, the worst first, then the one that affects most. `rows` by table; a column that
    they lack is not known."""
    tables = _tables(rows)
    tables = replace(tables, replicas=find_replicas(tables, limits))
    tables = replace(tables, changes=find_changes(tables, limits))
    tables = replace(tables, judged=judge(tables, limits))
    checks = [one for one in all_checks() if one.name in CHECKED]
    found = union([check.run(tables, limits) for check in checks]).collect()
    return sorted(
        found,
        key=lambda each: (
            _SEVERITIES.index(each["severity"]),
            -(each["affected"] or 0),
            each["check"],
            each["evidence"],
        ),
    )


def _tables(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Tables:
    frames: dict[str, Any] = {}
    for table, each in rows.items():
        names = names_of(COLUMNS[table])
        frames[table] = LocalFrame(names, [{name: row.get(name) for name in names} for row in each])
    return replace(empty_tables(LocalEngine()), **frames)
