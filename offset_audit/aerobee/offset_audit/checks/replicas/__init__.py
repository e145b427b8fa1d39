"""Checks of the replicas of one broker group against each other and against the registry."""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check
from aerobee.offset_audit.checks.replicas import (
    clock,
    not_writable,
    one_zone,
    replica_data,
    route,
    unreachable,
)
from aerobee.offset_audit.checks.replicas.replica_epoch import REPLICA_EPOCH, UNCLEAN_ELECTION
from aerobee.offset_audit.checks.replicas.replica_progress import REPLICA_GAP, REPLICA_PROGRESS

CHECKS: tuple[Check, ...] = (
    unreachable.CHECK,
    not_writable.CHECK,
    route.CHECK,
    REPLICA_PROGRESS,
    REPLICA_EPOCH,
    UNCLEAN_ELECTION,
    one_zone.CHECK,
    replica_data.CHECK,
    REPLICA_GAP,
    clock.CHECK,
)
"""Every check of this folder, the one that explains most first."""
