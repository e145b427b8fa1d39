"""ONE_ZONE: what the loss of one zone would take down, in a cluster that has several.

The zones are those that brokers report. A group with an in-sync replica that reports none is not
judged.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import with_small_tables
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
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


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each broker group whose in-sync replicas share a zone, and one if all masters
    do."""
    tables = with_small_tables(tables)
    brokers = tables.registry_brokers.select("cluster", "broker_name", "broker_id", "role", "zone")
    several = brokers.groupBy("cluster").agg(F.count_distinct("zone").alias("zones"))
    brokers = brokers.join(several.where(F.col("zones") >= SEVERAL), "cluster", "left_semi")
    return _in_sync(brokers, tables).unionByName(_masters(brokers))


def _zones() -> list[Column]:
    """For brokers: for how many the zone is known, how many zones these are, and one of them."""
    return [
        F.named("count(zone) known"),
        F.named("count(distinct zone) zones"),
        F.named("max(zone) zone"),
    ]


def _in_sync(brokers: Frame, tables: Tables) -> Frame:
    """A group with a single in-sync replica has another problem than zones, or is intended to be
    so."""
    members = (
        tables.registry_groups.where(F.size("in_sync") >= SEVERAL)
        .select("cluster", "broker_name", F.explode("in_sync").alias("broker_id"))
        .join(brokers, ["cluster", "broker_name", "broker_id"], "left")
    )
    found = (
        members.groupBy("cluster", "broker_name")
        .agg(F.count("*").alias("replicas"), *_zones())
        .where(IN_SYNC_HOLDS)
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.WARNING,
        evidence=F.expr(IN_SYNC_EVIDENCE),
        affected=F.col("replicas"),
        command=COMMAND,
    )


def _masters(brokers: Frame) -> Frame:
    found = (
        brokers.where(F.col("role") == "MASTER")
        .groupBy("cluster")
        .agg(F.count("*").alias("masters"), *_zones())
        .where(MASTERS_HOLD)
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.INFO,
        evidence=F.expr(MASTERS_EVIDENCE),
        affected=F.col("masters"),
        command=COMMAND,
    )


CHECK = Check(
    NAME,
    TITLE,
    run,
    needs={"registry_brokers": "count(distinct zone) > 1", "registry_groups": "count(1) > 0"},
)
