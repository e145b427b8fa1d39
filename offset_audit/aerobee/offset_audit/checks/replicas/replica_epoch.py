"""REPLICA_EPOCH: epoch tables of one group that contradict each other, themselves or the registry.

Two tables agree if they are equal for all epochs that both logs contain: one may begin later
(retention) or end earlier (it has not heard yet), and an epoch without a byte may be missing.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import (
    GROUP,
    REPLICA,
    heard_replicas,
    leader_ids,
    with_small_tables,
)
from aerobee.offset_audit.frames.frame import Frame, union
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables


def _replica_epoch(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each replica with a contradiction."""
    tables = with_small_tables(tables)
    epochs = _epochs(tables)
    roles = heard_replicas(tables).groupBy(*REPLICA).agg("max(role) role", "max(epoch) epoch")
    found = (
        union([_within(epochs), _between(epochs, tables), _with_registry(epochs, tables)])
        .groupBy(*REPLICA)
        .agg("count(1) contradictions", "min_by(said, struct(rank, at_epoch)) said")
        .join(roles, REPLICA, "left")
    )
    return finding_rows(
        found,
        "REPLICA_EPOCH",
        severity=Severity.ERROR,
        evidence=phrase(
            "{contradictions|entry of the epoch table is contradicted: |entries of "
            "the epoch table are contradicted; the first: }{said}."
        ),
        affected="contradictions",
        command="aerobee cluster show",
    )


def _epochs(tables: Tables) -> Frame:
    """Each entry once, with the next one's start and the bounds of its table."""
    own = f"partition by {', '.join(REPLICA)}"
    return (
        tables.epochs.select(*REPLICA, "epoch", "start_offset")
        .distinct()
        .withColumns(
            {
                "next_start": f"lead(start_offset) over ({own} order by epoch, start_offset)",
                "first_epoch": f"min(epoch) over ({own})",
                "last_epoch": f"max(epoch) over ({own})",
            }
        )
    )


def _said(rows: Frame, rank: int, text: str) -> Frame:
    return rows.selectExpr(*REPLICA, f"{rank} rank", "epoch at_epoch", f"{text} said")


def _within(epochs: Frame) -> Frame:
    """A later epoch that begins before an earlier one."""
    return _said(
        epochs.where("next_start < start_offset"),
        0,
        phrase(
            "epoch {epoch} begins at byte {start_offset}, the next one earlier, at {next_start}"
        ),
    )


def _between(epochs: Frame, tables: Tables) -> Frame:
    """Entries on which a replica and its leader differ, or that only one of them has."""
    with_leader = epochs.join(leader_ids(tables), GROUP)
    of_leader = with_leader.where("broker_id = leader_id")
    theirs = of_leader.selectExpr(
        *GROUP, "epoch", "start_offset leader_start", "next_start leader_next"
    )
    bounds = of_leader.selectExpr(
        *GROUP, "first_epoch leader_first", "last_epoch leader_last"
    ).distinct()
    mine = with_leader.where("broker_id <> leader_id")
    followers = mine.select(*REPLICA, "leader_id", "first_epoch", "last_epoch").distinct()
    expected = followers.join(theirs, GROUP).where("epoch between first_epoch and last_epoch")
    here = mine.select(*REPLICA, "epoch", "start_offset", "next_start")
    contradicted = expected.join(here, [*REPLICA, "epoch"], "left").where(
        "start_offset <> leader_start or (start_offset is null and leader_next > leader_start)"
    )
    invented = (
        mine.join(bounds, GROUP)
        .where("epoch between leader_first and leader_last and next_start > start_offset")
        .join(theirs, [*GROUP, "epoch"], "left_anti")
    )
    return _said(
        contradicted,
        1,
        phrase(
            "epoch {epoch}{begin}; for {broker_name}:{leader_id} it begins at byte {leader_start}",
            begin=either("start_offset is null", " is missing", " begins at byte {start_offset}"),
        ),
    ).unionByName(
        _said(
            invented,
            2,
            phrase(
                "epoch {epoch} begins at byte {start_offset}, and {broker_name}:{leader_id} has no "
                "such epoch"
            ),
        )
    )


def _with_registry(epochs: Frame, tables: Tables) -> Frame:
    """A table with an epoch that the registry never assigned. A broker that names such an epoch as
    its current one is reported by ROUTE."""
    registry = tables.registry_groups.groupBy("broker_name").agg("max(epoch) registry_epoch")
    present = (
        heard_replicas(tables)
        .where("role <> 'STORE'")
        .groupBy(*REPLICA)
        .agg("max(epoch) present_epoch")
    )
    return _said(
        epochs.where("epoch = last_epoch")
        .join(registry, "broker_name")
        .join(present, REPLICA)
        .where("epoch > registry_epoch and coalesce(present_epoch <= registry_epoch, true)"),
        3,
        phrase(
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
