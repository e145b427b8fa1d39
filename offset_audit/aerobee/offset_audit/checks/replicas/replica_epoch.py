"""REPLICA_EPOCH: epoch tables of one group that contradict each other, themselves or the registry.

Two tables agree if they are equal for all epochs that both logs contain: one may begin later
(retention) or end earlier (it has not heard yet), and an epoch without a byte may be missing.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows, sentence
from aerobee.offset_audit.checks.replicas.leaders import (
    GROUP,
    REPLICA,
    heard_replicas,
    leader_ids,
    with_small_tables,
)
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column, Window
from aerobee.offset_audit.tables import Tables


def _replica_epoch(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each replica with a contradiction."""
    tables = with_small_tables(tables)
    epochs = _epochs(tables)
    contradictions = (
        _within(epochs)
        .unionByName(_between(epochs, tables))
        .unionByName(_with_registry(epochs, tables))
    )
    roles = (
        heard_replicas(tables)
        .groupBy(*REPLICA)
        .agg(F.max("role").alias("role"), F.max("epoch").alias("epoch"))
    )
    found = (
        contradictions.groupBy(*REPLICA)
        .agg(
            F.count("*").alias("contradictions"),
            F.min_by("said", F.struct("rank", "at_epoch")).alias("said"),
        )
        .join(roles, REPLICA, "left")
    )
    return finding_rows(
        found,
        "REPLICA_EPOCH",
        severity=Severity.ERROR,
        evidence=sentence(
            "{contradictions|entry of the epoch table is contradicted: |entries of "
            "the epoch table are contradicted; the first: }{said}."
        ),
        affected=F.col("contradictions"),
        command="aerobee cluster show",
    )


def _epochs(tables: Tables) -> Frame:
    """Each entry once, with the next one's start and the bounds of its table."""
    own = Window.partitionBy(*REPLICA)
    return (
        tables.epochs.select(*REPLICA, "epoch", "start_offset")
        .distinct()
        .withColumn("next_start", F.lead("start_offset").over(own.orderBy("epoch", "start_offset")))
        .withColumn("first_epoch", F.min("epoch").over(own))
        .withColumn("last_epoch", F.max("epoch").over(own))
    )


def _said(rows: Frame, rank: int, text: Column) -> Frame:
    return rows.select(
        *REPLICA, F.lit(rank).alias("rank"), F.col("epoch").alias("at_epoch"), text.alias("said")
    )


def _within(epochs: Frame) -> Frame:
    """A later epoch that begins before an earlier one."""
    return _said(
        epochs.where(F.col("next_start") < F.col("start_offset")),
        0,
        sentence(
            "epoch {epoch} begins at byte {start_offset}, the next one earlier, at {next_start}"
        ),
    )


def _between(epochs: Frame, tables: Tables) -> Frame:
    """Entries on which a replica and its leader differ, or that only one of them has."""
    leaders = leader_ids(tables)
    with_leader = epochs.join(leaders, GROUP)
    theirs = with_leader.where(F.col("broker_id") == F.col("leader_id")).select(
        *GROUP,
        "epoch",
        F.col("start_offset").alias("leader_start"),
        F.col("next_start").alias("leader_next"),
    )
    bounds = (
        with_leader.where(F.col("broker_id") == F.col("leader_id"))
        .select(
            *GROUP,
            F.col("first_epoch").alias("leader_first"),
            F.col("last_epoch").alias("leader_last"),
        )
        .distinct()
    )
    mine = with_leader.where(F.col("broker_id") != F.col("leader_id"))
    followers = mine.select(*REPLICA, "leader_id", "first_epoch", "last_epoch").distinct()
    expected = followers.join(theirs, GROUP).where(
        F.col("epoch").between(F.col("first_epoch"), F.col("last_epoch"))
    )
    here = mine.select(*REPLICA, "epoch", "start_offset", "next_start")
    contradicted = expected.join(here, [*REPLICA, "epoch"], "left").where(
        (F.col("start_offset") != F.col("leader_start"))
        | (F.col("start_offset").isNull() & (F.col("leader_next") > F.col("leader_start")))
    )
    invented = (
        mine.join(bounds, GROUP)
        .where(F.col("epoch").between(F.col("leader_first"), F.col("leader_last")))
        .where(F.col("next_start") > F.col("start_offset"))
        .join(theirs, [*GROUP, "epoch"], "left_anti")
    )
    leader = sentence("{broker_name}:{leader_id}")
    return _said(
        contradicted,
        1,
        sentence(
            "epoch {epoch}{begin}; for {leader} it begins at byte {leader_start}",
            begin=F.when(F.col("start_offset").isNull(), " is missing").otherwise(
                sentence(" begins at byte {start_offset}")
            ),
            leader=leader,
        ),
    ).unionByName(
        _said(
            invented,
            2,
            sentence(
                "epoch {epoch} begins at byte {start_offset}, and {leader} has no such epoch",
                leader=leader,
            ),
        )
    )


def _with_registry(epochs: Frame, tables: Tables) -> Frame:
    """A table with an epoch that the registry never assigned. A broker that names such an epoch as
    its current one is reported by ROUTE."""
    registry = tables.registry_groups.groupBy("broker_name").agg(
        F.max("epoch").alias("registry_epoch")
    )
    present = (
        heard_replicas(tables)
        .where(F.col("role") != "STORE")
        .groupBy(*REPLICA)
        .agg(F.max("epoch").alias("present_epoch"))
    )
    return _said(
        epochs.where(F.col("epoch") == F.col("last_epoch"))
        .join(registry, "broker_name")
        .join(present, REPLICA)
        .where(F.col("epoch") > F.col("registry_epoch"))
        .where(F.coalesce(F.col("present_epoch") <= F.col("registry_epoch"), F.lit(True))),
        3,
        sentence(
            "epoch {epoch} begins at byte {start_offset}, and the registry has given "
            "no epoch after {registry_epoch}"
        ),
    )


REPLICA_EPOCH = Check(
    "REPLICA_EPOCH",
    "Epoch tables contradict each other or the registry.",
    _replica_epoch,
    needs={"epochs": "count(1) > 1", "registry_groups": "count(1) > 0"},
)
