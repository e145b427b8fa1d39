"""All checks of the audit, in the order of their docs."""

from __future__ import annotations

from aerobee.offset_audit.checks import data, progress, replicas
from aerobee.offset_audit.checks.check import Check


def all_checks() -> tuple[Check, ...]:
    """Progress of groups, then replicas, then data."""
    return (*progress.CHECKS, *replicas.CHECKS, *data.CHECKS)


def checks_for(*, is_deep: bool, has_stores: bool) -> tuple[Check, ...]:
    """Those that a run of this depth has the tables for."""
    return tuple(
        one for one in all_checks() if not one.is_deep or (is_deep and (has_stores or one.is_live))
    )
