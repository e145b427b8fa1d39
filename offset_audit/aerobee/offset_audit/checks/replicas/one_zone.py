"""ONE_ZONE: what the loss of one zone would take down, in a cluster that has several.

The zones are those that brokers report. A group with an in-sync replica that reports none is not
judged.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import with_small_tables
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import phrase
from aerobee.offset_audit.tables import Tables

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


_ZONES: Final = ("count(zone) known", "count(distinct zone) zones", "max(zone) zone")
"""For brokers: for how many the zone is known, how many zones these are, and one of them."""


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each broker group whose in-sync replicas share a zone, and one if all masters
    do."""
    tables = with_small_tables(tables)
    brokers = tables.registry_brokers.select("cluster", "broker_name", "broker_id", "role", "zone")
    several = brokers.groupBy("cluster").agg("count(distinct zone) zones")
    brokers = brokers.join(several.where(f"zones >= {SEVERAL}"), "cluster", "left_semi")
    return _in_sync(brokers, tables).unionByName(_masters(brokers))


def _in_sync(brokers: Frame, tables: Tables) -> Frame:
    """A group with a single in-sync replica has another problem than zones, or is intended to be
    so."""
    found = (
        tables.registry_groups.where(f"size(in_sync) >= {SEVERAL}")
        .selectExpr("cluster", "broker_name", "explode(in_sync) broker_id")
        .join(brokers, ["cluster", "broker_name", "broker_id"], "left")
        .groupBy("cluster", "broker_name")
        .agg("count(1) replicas", *_ZONES)
        .where(IN_SYNC_HOLDS)
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.WARNING,
        evidence=IN_SYNC_EVIDENCE,
        affected="replicas",
        command=COMMAND,
    )


def _masters(brokers: Frame) -> Frame:
    found = (
        brokers.where("role = 'MASTER'")
        .groupBy("cluster")
        .agg("count(1) masters", *_ZONES)
        .where(MASTERS_HOLD)
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.INFO,
        evidence=MASTERS_EVIDENCE,
        affected="masters",
        command=COMMAND,
    )


CHECK = Check(
    NAME,
    TITLE,
    run,
    needs={"registry_brokers": "count(distinct zone) > 1", "registry_groups": "count(1) > 0"},
)
