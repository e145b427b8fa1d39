"""UNCLEAN_ELECTION: the registry itself says that a master began without acknowledged messages.

A replica that was not in sync became master, because an operator allowed it or no other was left.
What it lacked is lost to the group; the epoch that it began says from where on.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import (
    with_small_tables,
)
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables

NAME: Final = "UNCLEAN_ELECTION"
TITLE: Final = "A replica that may lack acknowledged messages became master."
COMMAND: Final = "aerobee cluster show"

IS_PAST: Final = "coalesce(start < log_begin, false)"
"""For one epoch: everything stored before it began has been removed."""
SEVERITY: Final = "if(is_past, 'INFO', 'ERROR')"
EVIDENCE: Final = phrase(
    "{begun} {epochs} of {broker_name}: a replica that may lack acknowledged messages became master"
    "{place}{past}.",
    begun=either(
        "elections = 1", "An unclean election began epoch", "Unclean elections began epochs"
    ),
    place=either("start is not null", "; the last one at byte {start} of the log"),
    past=either("is_past", "; retention has removed everything that was stored until then"),
)


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each broker group, INFO once its logs begin after all such epochs did."""
    tables = with_small_tables(tables)
    elected = tables.registry_groups.selectExpr(
        "cluster", "broker_name", "explode(unclean_epochs) unclean_epoch"
    ).distinct()
    starts = (
        tables.epochs.selectExpr("broker_name", "epoch unclean_epoch", "start_offset")
        .groupBy("broker_name", "unclean_epoch")
        .agg("max(start_offset) start")
    )
    logs = (
        tables.brokers.where("answered").groupBy("broker_name").agg("min(log_min_offset) log_begin")
    )
    found = (
        elected.join(starts, ["broker_name", "unclean_epoch"], "left")
        .join(logs, "broker_name", "left")
        .withColumn("is_past", IS_PAST)
        .groupBy("cluster", "broker_name")
        .agg(
            "sort_array(collect_set(unclean_epoch)) unclean",
            "max_by(start, unclean_epoch) start",
            "bool_and(is_past) is_past",
        )
        .withColumns(
            {
                "elections": "size(unclean)",
                "epochs": "array_join(unclean, ', ')",
                "epoch": "array_max(unclean)",
            }
        )
    )
    return finding_rows(found, NAME, severity=SEVERITY, evidence=EVIDENCE, command=COMMAND)


CHECK = Check(
    NAME,
    TITLE,
    run,
    needs={"registry_groups": "bool_or(size(unclean_epochs) > 0)"},
)
