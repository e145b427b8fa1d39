"""All rules that one reading can answer, and which of the audit's checks it leaves out."""

from __future__ import annotations

from typing import Any, Final

from aerobee.offset_audit.doctor.brokers import unreachable
from aerobee.offset_audit.doctor.judging import Tables, judged_rows
from aerobee.offset_audit.doctor.replicas import (
    gaps,
    refusing,
    shared_zones,
    unclean_elections,
    wrong_clocks,
)
from aerobee.offset_audit.doctor.routes import contradictions
from aerobee.offset_audit.rules import (
    clock,
    not_writable,
    one_zone,
    replica_gap,
    route,
    unclean_election,
)
from aerobee.offset_audit.rules.asking import findings_of
from aerobee.offset_audit.rules.lag import LAG, SAMPLING
from aerobee.offset_audit.rules.limits import Limits
from aerobee.offset_audit.rules.orphan import ORPHAN
from aerobee.offset_audit.rules.out_of_range import OUT_OF_RANGE_HIGH, OUT_OF_RANGE_LOW
from aerobee.offset_audit.rules.standstill import STOPPED, STUCK, UNCOMMITTED_QUEUE
from aerobee.offset_audit.rules.unreachable import NAME as UNREACHABLE

RULES: Final = (
    LAG,
    STUCK,
    STOPPED,
    OUT_OF_RANGE_LOW,
    OUT_OF_RANGE_HIGH,
    ORPHAN,
    UNCOMMITTED_QUEUE,
    SAMPLING,
)
OF_BROKERS: Final = {
    not_writable.NAME: refusing,
    clock.NAME: wrong_clocks,
    one_zone.NAME: shared_zones,
    replica_gap.NAME: gaps,
    route.NAME: contradictions,
    unclean_election.NAME: unclean_elections,
}
CHECKED: Final = (UNREACHABLE, *OF_BROKERS, *(rule.name for rule in RULES))
_SEVERITIES: Final = ("CRITICAL", "ERROR", "WARNING", "INFO")


def examined(tables: Tables, limits: Limits) -> list[dict[str, Any]]:
    """The findings, the worst first, then the one that affects most."""
    rows = judged_rows(tables, limits)
    found = unreachable(tables)
    for check in OF_BROKERS.values():
        found += check(tables, limits)
    for rule in RULES:
        found += findings_of(rule, rows, limits)
    return sorted(
        found,
        key=lambda each: (
            _SEVERITIES.index(each["severity"]),
            -(each["affected"] or 0),
            each["check"],
            each["evidence"],
        ),
    )
