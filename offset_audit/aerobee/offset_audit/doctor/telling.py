"""From a row with a problem to a row of FINDINGS: `checks.finding_rows` without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aerobee.offset_audit.rules.expressions import read

_PLACE: Final = (
    *("cluster", "broker_name", "broker_id", "role", "epoch"),
    *("group", "topic", "queue_id", "state"),
)


def finding(
    row: Mapping[str, Any], *, check: str, severity: str, evidence: str, affected: str, command: str
) -> dict[str, Any]:
    """`severity`, `evidence` and `affected` are SQL over the row; a place column that it lacks is
    null."""
    return {
        **{name: row.get(name) for name in _PLACE},
        "check": check,
        "severity": read(severity)(row),
        "affected": read(affected)(row),
        "evidence": read(evidence)(row),
        "command": command,
    }
