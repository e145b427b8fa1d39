"""UNREACHABLE: an expected broker did not answer, so what only it knows is unknown."""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import GROUP, REPLICA, with_small_tables
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules import unreachable as rules
from aerobee.offset_audit.tables import Tables


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each broker that did not answer; it explains everything that is unknown
    because of it."""
    tables = with_small_tables(tables)
    live = tables.brokers.where(F.col("role").isNull() | (F.col("role") != "STORE"))
    silent = _unanswered(live).unionByName(_unasked(live, tables))
    masters = (
        live.where(F.col("answered") & (F.col("role") == "MASTER")).select("broker_name").distinct()
    )
    leaderless = silent.select("broker_name").distinct().join(masters, "broker_name", "left_anti")
    unknown = (
        tables.registry_topics.join(leaderless, "broker_name")
        .groupBy("broker_name")
        .agg(F.sum("write_queue_count").alias("queues"), F.count_distinct("topic").alias("topics"))
    )
    found = silent.join(unknown, "broker_name", "left").join(
        masters.withColumn("has_master", F.lit(True)), "broker_name", "left"
    )
    return finding_rows(
        found,
        rules.NAME,
        severity=F.expr(rules.SEVERITY),
        evidence=F.expr(rules.EVIDENCE),
        affected=F.expr(rules.AFFECTED),
        command=rules.COMMAND,
    )


_COLUMNS = [*REPLICA, "address", "role", "epoch", "reason", "is_busy"]


def _unanswered(live: Frame) -> Frame:
    """Brokers that were asked; one row each, however often they are named."""
    answered = live.where("answered").select(F.col("address").alias("a")).where("a is not null")
    return (
        live.where(~F.coalesce("answered", F.lit(False)))
        .join_where(answered.distinct(), [F.col("address") == F.col("a")], "left_anti")
        .groupBy(*REPLICA, "address")
        .agg(
            F.first("role", ignorenulls=True).alias("role"),
            F.max("epoch").alias("epoch"),
            F.first("error", ignorenulls=True).alias("error"),
        )
        .withColumn("is_busy", F.expr(rules.IS_BUSY))
        .withColumn("reason", F.expr(rules.NO_ANSWER))
        .select(*_COLUMNS)
    )


def _unasked(live: Frame, tables: Tables) -> Frame:
    """Replicas that the registry's groups expect but whose address is unknown, and registered ones
    that were not asked. Without any live broker nothing was expected to answer."""
    registered = tables.registry_brokers.select(
        "cluster", "broker_name", "broker_id", "address", "role", "epoch"
    ).withColumn("reason", F.lit(rules.NOT_ASKED))
    expected = (
        tables.registry_groups.select(
            "cluster", "broker_name", F.explode("replicas").alias("broker_id"), "epoch"
        )
        .withColumn("address", F.lit(None).cast("string"))
        .withColumn("role", F.lit(None).cast("string"))
        .withColumn("reason", F.lit(rules.NOT_REGISTERED))
    )
    missing = (
        expected.join(registered, [*GROUP[1:], "broker_id"], "left_anti")
        .unionByName(registered)
        .join(
            live.where(F.col("broker_id").isNotNull()).select("broker_name", "broker_id"),
            ["broker_name", "broker_id"],
            "left_anti",
        )
        .dropDuplicates(["broker_name", "broker_id"])
    )
    asked = live.limit(1).select(F.lit(1).alias("one"))
    return missing.crossJoin(asked).withColumn("is_busy", F.lit(False)).select(*_COLUMNS)


CHECK = Check(
    rules.NAME,
    rules.TITLE,
    run,
    needs={"brokers": "bool_or(coalesce(role, '') <> 'STORE')"},
)
