"""The replica of each group with which the others are compared, and the columns that identify a
replica."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.tables import Tables

GROUP = ["cluster", "broker_name"]
"""What names a broker group."""

REPLICA = [*GROUP, "broker_id"]

IS_LIVE: Final = "answered and role <> 'STORE'"
"""Of BROKERS: one that answered, and no files."""
IS_MASTER: Final = "answered and role = 'MASTER'"

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
    place = f"""row_number() over (partition by {", ".join(GROUP)} order by
        if(role = 'MASTER', 0, 1), epoch desc nulls last, appended_end desc nulls last, broker_id,
        address)"""
    return tables.brokers.where("answered and broker_id is not null").withColumn(
        "is_leader", f"{place} = 1"
    )


def leader_ids(tables: Tables) -> Frame:
    """`leader_id` of each group that has one."""
    return (
        heard_replicas(tables)
        .where("is_leader")
        .selectExpr(*GROUP, "broker_id leader_id", "role leader_role")
    )
