"""ONE_ZONE: what the loss of one zone would take down, in a cluster that has several.

The zones are those that brokers report. A group with an in-sync replica that reports none is not
judged.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import with_small_tables
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.rules import one_zone as rules
from aerobee.offset_audit.tables import Tables


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each broker group whose in-sync replicas share a zone, and one if all masters
    do."""
    tables = with_small_tables(tables)
    brokers = tables.registry_brokers.select("cluster", "broker_name", "broker_id", "role", "zone")
    several = brokers.groupBy("cluster").agg(F.count_distinct("zone").alias("zones"))
    brokers = brokers.join(several.where(F.col("zones") >= rules.SEVERAL), "cluster", "left_semi")
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
        tables.registry_groups.where(F.size("in_sync") >= rules.SEVERAL)
        .select("cluster", "broker_name", F.explode("in_sync").alias("broker_id"))
        .join(brokers, ["cluster", "broker_name", "broker_id"], "left")
    )
    found = (
        members.groupBy("cluster", "broker_name")
        .agg(F.count("*").alias("replicas"), *_zones())
        .where(rules.IN_SYNC_HOLDS)
    )
    return finding_rows(
        found,
        rules.NAME,
        severity=Severity.WARNING,
        evidence=F.expr(rules.IN_SYNC_EVIDENCE),
        affected=F.col("replicas"),
        command=rules.COMMAND,
    )


def _masters(brokers: Frame) -> Frame:
    found = (
        brokers.where(F.col("role") == "MASTER")
        .groupBy("cluster")
        .agg(F.count("*").alias("masters"), *_zones())
        .where(rules.MASTERS_HOLD)
    )
    return finding_rows(
        found,
        rules.NAME,
        severity=Severity.INFO,
        evidence=F.expr(rules.MASTERS_EVIDENCE),
        affected=F.col("masters"),
        command=rules.COMMAND,
    )


CHECK = Check(
    rules.NAME,
    rules.TITLE,
    run,
    needs={"registry_brokers": "count(distinct zone) > 1", "registry_groups": "count(1) > 0"},
)
