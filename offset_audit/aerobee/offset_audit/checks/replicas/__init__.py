"""Checks of the replicas of one broker group against each other and against the registry."""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check
from aerobee.offset_audit.checks.replicas import (
    clock,
    not_writable,
    one_zone,
    replica_data,
    replica_gap,
    route,
    unclean_election,
    unreachable,
)
from aerobee.offset_audit.checks.replicas.replica_epoch import REPLICA_EPOCH
from aerobee.offset_audit.checks.replicas.replica_progress import REPLICA_PROGRESS

CHECKS: tuple[Check, ...] = (
    unreachable.CHECK,
    not_writable.CHECK,
    route.CHECK,
    REPLICA_PROGRESS,
    REPLICA_EPOCH,
    unclean_election.CHECK,
    one_zone.CHECK,
    replica_data.CHECK,
    replica_gap.CHECK,
    clock.CHECK,
)
"""Every check of this folder, the one that explains most first."""
