"""ONE_ZONE: what the loss of one zone would take with it, in a cluster that has several.

The zones are those that brokers say of themselves. A group of which a replica in sync says none is
not judged.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows, sentence
from aerobee.offset_audit.checks.replicas.leaders import with_small_tables
from aerobee.offset_audit.tables import Tables

NAME = "ONE_ZONE"
_SHOW = "aerobee cluster show"
_SEVERAL = 2


def run(tables: Tables, _limits: Limits) -> DataFrame:
    """One finding for each broker group whose replicas in sync share a zone, and one if all masters
    do."""
    tables = with_small_tables(tables)
    brokers = tables.registry_brokers.select("cluster", "broker_name", "broker_id", "role", "zone")
    several = brokers.groupBy("cluster").agg(F.count_distinct("zone").alias("zones"))
    brokers = brokers.join(several.where(F.col("zones") >= _SEVERAL), "cluster", "left_semi")
    return _in_sync(brokers, tables).unionByName(_masters(brokers))


def _in_sync(brokers: DataFrame, tables: Tables) -> DataFrame:
    """A group with one replica in sync has another trouble than zones, or wants it so."""
    members = (
        tables.registry_groups.where(F.size("in_sync") >= _SEVERAL)
        .select("cluster", "broker_name", F.explode("in_sync").alias("broker_id"))
        .join(brokers, ["cluster", "broker_name", "broker_id"], "left")
    )
    found = (
        members.groupBy("cluster", "broker_name")
        .agg(
            F.count("*").alias("replicas"),
            F.count("zone").alias("known"),
            F.count_distinct("zone").alias("zones"),
            F.max("zone").alias("zone"),
        )
        .where((F.col("known") == F.col("replicas")) & (F.col("zones") == 1))
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.WARNING,
        evidence=sentence(
            "All ",
            F.col("replicas"),
            " replicas of ",
            F.col("broker_name"),
            " that are in sync are in zone ",
            F.col("zone"),
            ": if this zone is lost, so is access to everything that only they have.",
        ),
        affected=F.col("replicas"),
        command=_SHOW,
    )


def _masters(brokers: DataFrame) -> DataFrame:
    found = (
        brokers.where(F.col("role") == "MASTER")
        .groupBy("cluster")
        .agg(
            F.count("*").alias("masters"),
            F.count("zone").alias("known"),
            F.count_distinct("zone").alias("zones"),
            F.max("zone").alias("zone"),
        )
        .where((F.col("masters") >= _SEVERAL) & (F.col("known") == F.col("masters")))
        .where(F.col("zones") == 1)
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.INFO,
        evidence=sentence(
            "The masters of all ",
            F.col("masters"),
            " broker groups are in zone ",
            F.col("zone"),
            ": if this zone is lost, no group takes messages until others are elected.",
        ),
        affected=F.col("masters"),
        command=_SHOW,
    )


CHECK = Check(
    NAME,
    "Replicas in sync, or all masters, are in one of several zones.",
    run,
    needs={"registry_brokers": "count(distinct zone) > 1", "registry_groups": "count(1) > 0"},
)
