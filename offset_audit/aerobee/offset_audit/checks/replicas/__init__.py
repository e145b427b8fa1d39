"""Checks of the replicas of one broker group against each other and against the registry."""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check
from aerobee.offset_audit.checks.replicas import (
    clock,
    replica_data,
    replica_epoch,
    replica_gap,
    replica_progress,
    route,
    unclean_election,
    unreachable,
)

CHECKS: tuple[Check, ...] = (
    unreachable.CHECK,
    route.CHECK,
    replica_progress.CHECK,
    replica_epoch.CHECK,
    unclean_election.CHECK,
    replica_data.CHECK,
    replica_gap.CHECK,
    clock.CHECK,
)
"""Every check of this folder, the one that explains most first."""
