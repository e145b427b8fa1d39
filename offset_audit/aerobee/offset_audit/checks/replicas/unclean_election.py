"""UNCLEAN_ELECTION: the registry's own word that a master began without acknowledged messages.

A replica that was not in sync became master, because an operator allowed it or nobody else was
left. What it lacked is gone from the group; the epoch that it began says from where on.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows, sentence
from aerobee.offset_audit.checks.replicas.leaders import with_small_tables
from aerobee.offset_audit.tables import Tables

NAME = "UNCLEAN_ELECTION"


def run(tables: Tables, _limits: Limits) -> DataFrame:
    """One finding for each broker group, INFO once its logs begin after all such epochs did."""
    tables = with_small_tables(tables)
    elected = (
        tables.registry_groups.select("cluster", "broker_name", "unclean_epochs")
        .withColumn("unclean_epoch", F.explode("unclean_epochs"))
        .distinct()
    )
    starts = tables.epochs.groupBy("broker_name", F.col("epoch").alias("unclean_epoch")).agg(
        F.max("start_offset").alias("start")
    )
    logs = (
        tables.brokers.where(F.col("answered"))
        .groupBy("broker_name")
        .agg(F.min("log_min_offset").alias("log_begin"))
    )
    found = (
        elected.join(starts, ["broker_name", "unclean_epoch"], "left")
        .join(logs, "broker_name", "left")
        .withColumn("is_past", F.coalesce(F.col("start") < F.col("log_begin"), F.lit(False)))
        .groupBy("cluster", "broker_name")
        .agg(
            F.sort_array(F.collect_set("unclean_epoch")).alias("epochs"),
            F.max_by(F.struct("unclean_epoch", "start"), "unclean_epoch").alias("last"),
            F.bool_and("is_past").alias("is_past"),
        )
        .withColumn("epoch", F.col("last.unclean_epoch"))
    )
    return finding_rows(
        found,
        NAME,
        severity=F.when(F.col("is_past"), Severity.INFO.value).otherwise(Severity.ERROR.value),
        evidence=sentence(
            F.when(F.size("epochs") == 1, "An unclean election began epoch ").otherwise(
                "Unclean elections began epochs "
            ),
            F.array_join("epochs", ", "),
            " of ",
            F.col("broker_name"),
            ": a replica that may lack acknowledged messages became master",
            F.when(
                F.col("last.start").isNotNull(),
                sentence("; the last one at byte ", F.col("last.start"), " of the log"),
            ).otherwise(""),
            F.when(
                F.col("is_past"), "; retention has removed everything that was stored until then"
            ).otherwise(""),
            ".",
        ),
        command="aerobee cluster show",
    )


CHECK = Check(
    NAME,
    "A replica that may lack acknowledged messages became master.",
    run,
    needs={"registry_groups": "bool_or(size(unclean_epochs) > 0)"},
)
