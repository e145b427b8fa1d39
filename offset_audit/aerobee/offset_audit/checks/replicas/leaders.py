"""The replica of each group with which the others are compared, and the columns that identify a
replica."""

from __future__ import annotations

from dataclasses import replace

from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Window
from aerobee.offset_audit.tables import Tables

GROUP = ["cluster", "broker_name"]
"""What names a broker group."""

REPLICA = [*GROUP, "broker_id"]

_SMALL = (
    "brokers",
    "epochs",
    "segments",
    "registry_brokers",
    "registry_groups",
    "registry_topics",
)


def with_small_tables(tables: Tables) -> Tables:
    """`tables` with those that do not grow with queues in one partition each: questions to them
    alone are then one task without any exchange, instead of dozens for a few rows."""
    return replace(tables, **{name: getattr(tables, name).in_one_part() for name in _SMALL})


def heard_replicas(tables: Tables) -> Frame:
    """BROKERS that answered, and stores, with `is_leader` for one of each group: its master (of
    several, the one with the highest epoch), else the replica with the longest log."""
    heard = tables.brokers.where(F.col("answered") & F.col("broker_id").isNotNull())
    order = Window.partitionBy(*GROUP).orderBy(
        F.when(F.col("role") == "MASTER", 0).otherwise(1),
        F.col("epoch").desc_nulls_last(),
        F.col("appended_end").desc_nulls_last(),
        F.col("broker_id"),
        F.col("address"),
    )
    return heard.withColumn("is_leader", F.row_number().over(order) == 1)


def leader_ids(tables: Tables) -> Frame:
    """`leader_id` of each group that has one."""
    return (
        heard_replicas(tables)
        .where("is_leader")
        .select(*GROUP, F.col("broker_id").alias("leader_id"), F.col("role").alias("leader_role"))
    )
