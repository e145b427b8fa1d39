"""ONE_ZONE: what is reported about brokers that share a zone, in a cluster that has several.

Texts of SQL over a row of counts: how many there are, for how many the zone is known, how many
zones these are, and one of those.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.rules.texts import phrase

NAME: Final = "ONE_ZONE"
TITLE: Final = "Replicas in sync, or all masters, are in one of several zones."
COMMAND: Final = "aerobee cluster show"
SEVERAL: Final = 2

IN_SYNC_HOLDS: Final = "known = replicas and zones = 1"
"""A group with an in-sync replica that names no zone is not judged."""
IN_SYNC_EVIDENCE: Final = phrase(
    "All {replicas} replicas of {broker_name} that are in sync are in zone {zone}: if this zone is "
    "lost, so is access to everything that only they have."
)
MASTERS_HOLD: Final = f"masters >= {SEVERAL} and known = masters and zones = 1"
MASTERS_EVIDENCE: Final = phrase(
    "The masters of all {masters} broker groups are in zone {zone}: if this zone is lost, no group "
    "takes messages until others are elected."
)
