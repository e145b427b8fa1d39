"""ROUTE: what the registry says of brokers and topics against what the brokers say of themselves.

The registry is read before the brokers, and these one beside the other: what a change of master, or
the deletion of a topic, between the readings may explain is INFO. If it is no such change, the next
audit's registry knows it. Where a broker of a group did not answer, nobody knows
whether the group has a master: that is UNREACHABLE's, and not told here.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import (
    command_line,
    count_text,
    finding_rows,
    sentence,
)
from aerobee.offset_audit.checks.replicas.leaders import GROUP, with_small_tables
from aerobee.offset_audit.tables import Tables

NAME = "ROUTE"
SHOW = "aerobee cluster show"
NAMED_MAX = 3
_CHANGE = "; a change of master since it was read may explain this: run the audit again."


def run(tables: Tables, _limits: Limits) -> DataFrame:
    """One finding for each broker group, and each name in routes, that is not as it is said."""
    tables = with_small_tables(tables)
    live = tables.brokers.where(F.col("role").isNull() | (F.col("role") != "STORE"))
    parts = [
        _two_masters(live, tables),
        _other_master(live, tables),
        _no_master(live, tables),
        _unknown_brokers(live, tables),
        _lacking_topics(live, tables),
    ]
    return reduce(DataFrame.unionByName, parts)


def _masters(live: DataFrame) -> DataFrame:
    """The masters of each group by their own word."""
    return (
        live.where(F.col("answered") & (F.col("role") == "MASTER"))
        .groupBy(*GROUP)
        .agg(
            # Two processes may claim one id, and one process be named by two addresses.
            F.count_distinct(F.struct("broker_id", F.coalesce("incarnation", F.lit("")))).alias(
                "masters"
            ),
            F.sort_array(F.collect_set(F.struct("broker_id", "epoch", "address"))).alias("told"),
            F.max("epoch").alias("newest_epoch"),
            F.count_distinct("epoch").alias("epochs"),
            F.max("asked_at_ms").alias("last_asked_ms"),
            F.min_by("answered_at_ms", -F.col("epoch")).alias("newest_answered_ms"),
        )
    )


def _two_masters(live: DataFrame, tables: Tables) -> DataFrame:
    """Replicas that say that they are master of one group: of one epoch, or of an older one when
    the newest had been given already. That is proven if the registry, which was read before, or the
    newest master's own answer had it before the other was asked; else the readings may lie on the
    two sides of a hand-over."""
    registered = _registered(tables).select("broker_name", "registry_epoch")
    found = (
        _masters(live)
        .where(F.col("masters") > 1)
        .join(registered, "broker_name", "left")
        .withColumn(
            "is_proven",
            (F.col("epochs") <= 1)
            | F.coalesce(F.col("registry_epoch") >= F.col("newest_epoch"), F.lit(False))
            | F.coalesce(F.col("newest_answered_ms") <= F.col("last_asked_ms"), F.lit(False)),
        )
    )
    names = F.transform(
        F.slice("told", 1, NAMED_MAX),
        lambda one: sentence(
            F.col("broker_name"),
            ":",
            one.broker_id,
            " at ",
            one.address,
            " (epoch ",
            one.epoch,
            ")",
        ),
    )
    return finding_rows(
        found.withColumn("role", F.lit("MASTER")),
        NAME,
        severity=F.when(F.col("is_proven"), Severity.CRITICAL.value).otherwise(Severity.INFO.value),
        evidence=sentence(
            F.col("masters"),
            " replicas of the group each say that they are its master: ",
            F.array_join(names, ", "),
            F.when(F.col("is_proven"), ".").otherwise(
                "; a hand-over while they were asked may explain this: run the audit again."
            ),
        ),
        affected=F.col("masters"),
        command=SHOW,
    )


def _registered(tables: Tables) -> DataFrame:
    return tables.registry_groups.groupBy("broker_name").agg(
        F.max("cluster").alias("registry_cluster"),
        F.max("revision").alias("registry_revision"),
        F.max("epoch").alias("registry_epoch"),
        F.max(F.when(F.col("master_id") >= 0, F.col("master_id"))).alias("registry_master_id"),
        F.first("replicas", ignorenulls=True).alias("replicas"),
    )


def _other_master(live: DataFrame, tables: Tables) -> DataFrame:
    """A master that the registry does not know as such, or in another epoch. One of a newer epoch
    than the registry had when it was read may have become master since."""
    told = (
        _masters(live)
        .where(F.col("masters") == 1)
        .withColumn("broker_id", F.col("told")[0].broker_id)
        .withColumn("epoch", F.col("told")[0].epoch)
        .withColumn("role", F.lit("MASTER"))
    )
    found = told.join(_registered(tables), "broker_name").where(
        (F.col("broker_id") != F.col("registry_master_id"))
        | (F.col("epoch") != F.col("registry_epoch"))
    )
    is_newer = F.coalesce(F.col("epoch") > F.col("registry_epoch"), F.lit(False))
    return finding_rows(
        found,
        NAME,
        severity=F.when(is_newer, Severity.INFO.value).otherwise(Severity.ERROR.value),
        evidence=sentence(
            F.col("broker_name"),
            ":",
            F.col("broker_id"),
            " says that it is the master of epoch ",
            F.col("epoch"),
            "; the registry, at revision ",
            F.col("registry_revision"),
            ", names ",
            F.col("broker_name"),
            ":",
            F.col("registry_master_id"),
            ", of epoch ",
            F.col("registry_epoch"),
            F.when(is_newer, _CHANGE).otherwise("."),
        ),
        affected=F.lit(1),
        command=SHOW,
    )


def _no_master(live: DataFrame, tables: Tables) -> DataFrame:
    """Groups all of whose replicas answered, none of them as master. Where one of them knows a
    newer epoch than the registry had, the master has changed between the answers."""
    answered = (
        live.where("answered")
        .groupBy(*GROUP)
        .agg(
            F.count_if(F.col("role") == "MASTER").alias("masters"),
            F.collect_set("broker_id").alias("heard"),
            F.max("epoch").alias("newest_epoch"),
        )
    )
    found = (
        answered.where(F.col("masters") == 0)
        .join(_registered(tables), "broker_name")
        .where(F.size(F.array_except("replicas", "heard")) == 0)
        .join(live.where(~F.col("answered")).select(*GROUP).distinct(), GROUP, "left_anti")
    )
    is_newer = F.coalesce(F.col("newest_epoch") > F.col("registry_epoch"), F.lit(False))
    return finding_rows(
        found,
        NAME,
        severity=F.when(is_newer, Severity.INFO.value).otherwise(Severity.ERROR.value),
        evidence=sentence(
            count_text(F.size("heard"), "replica answers", "replicas answer"),
            " and none is master; the registry names ",
            F.coalesce(
                sentence(F.col("broker_name"), ":", F.col("registry_master_id")),
                F.lit("none either"),
            ),
            ", epoch ",
            F.col("registry_epoch"),
            F.when(is_newer, _CHANGE).otherwise("."),
        ).cast("string"),
        affected=F.size("heard"),
        command=SHOW,
    )


def _unknown_brokers(live: DataFrame, tables: Tables) -> DataFrame:
    """Names in routes that no broker has: neither registered nor heard of."""
    known = (
        tables.registry_groups.select("broker_name")
        .unionByName(tables.registry_brokers.select("broker_name"))
        .unionByName(live.select("broker_name"))
        .where(F.col("broker_name").isNotNull())
    )
    found = (
        tables.registry_topics.join(known.distinct(), "broker_name", "left_anti")
        .groupBy(*GROUP)
        .agg(
            F.count_distinct("topic").alias("topics"),
            F.sum("write_queue_count").alias("queues"),
            F.min("topic").alias("first_topic"),
        )
        .withColumn("topic", F.when(F.col("topics") == 1, F.col("first_topic")))
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.ERROR,
        evidence=sentence(
            count_text(F.col("topics"), "topic is", "topics are"),
            " routed to ",
            F.col("broker_name"),
            ", but no broker has this name: ",
            count_text(F.col("queues"), "queue", "queues"),
            ", among them ",
            F.col("first_topic"),
            "'s.",
        ),
        affected=F.col("topics"),
        command=command_line("aerobee topic show", "first_topic", otherwise=SHOW),
    )


def _lacking_topics(live: DataFrame, tables: Tables) -> DataFrame:
    """Topics that are routed to a master that has not got them. A broker of which no topics at all
    were read is not judged, nor a topic of which it still has queues, all of them trimmed: it has
    deleted that since the registry was read."""
    masters = live.where(F.col("answered") & (F.col("role") == "MASTER")).select(
        *GROUP, "broker_id", "role", "epoch"
    )
    owned = tables.topics.join(
        (masters.select(*GROUP, "broker_id")), [*GROUP, "broker_id"], "left_semi"
    )
    telling = masters.join(owned.groupBy(*GROUP).agg(F.max("revision").alias("known")), GROUP)
    found = (
        tables.registry_topics.select("broker_name", "topic", "topic_revision")
        .join(
            owned.select("broker_name", "topic").distinct(), ["broker_name", "topic"], "left_anti"
        )
        .join(_deleted_topics(tables, masters), ["broker_name", "topic"], "left_anti")
        .join(telling, "broker_name")
        .groupBy(*GROUP)
        .agg(
            F.min(F.struct("broker_id", "role", "epoch")).alias("broker"),
            F.count_distinct("topic").alias("topics"),
            F.min("topic").alias("first_topic"),
            F.bool_and(F.coalesce(F.col("topic_revision") > F.col("known"), F.lit(False))).alias(
                "is_new"
            ),
        )
        .select("*", "broker.*")
        .withColumn("topic", F.when(F.col("topics") == 1, F.col("first_topic")))
    )
    return finding_rows(
        found,
        NAME,
        severity=F.when(F.col("is_new"), Severity.INFO.value).otherwise(Severity.ERROR.value),
        evidence=sentence(
            count_text(F.col("topics"), "topic is", "topics are"),
            " routed to ",
            F.col("broker_name"),
            ":",
            F.col("broker_id"),
            ", which does not know ",
            F.when(F.col("topics") == 1, F.lit("it: ")).otherwise(F.lit("them; the first: ")),
            F.col("first_topic"),
            F.when(
                F.col("is_new"),
                "; the broker may not know of the change yet: run the audit again.",
            ).otherwise("."),
        ),
        affected=F.col("topics"),
        command=command_line("aerobee topic show", "first_topic", otherwise=SHOW),
    )


def _deleted_topics(tables: Tables, masters: DataFrame) -> DataFrame:
    """Topics whose queues a master still lists, without a message in any."""
    return (
        tables.queues.join(masters.select(*GROUP, "broker_id"), [*GROUP, "broker_id"], "left_semi")
        .groupBy("broker_name", "topic")
        .agg(
            F.bool_and(F.col("min_offset") == F.col("max_offset")).alias("is_trimmed"),
            F.max("max_offset").alias("end"),
        )
        .where(F.col("is_trimmed") & (F.col("end") > 0))
        .select("broker_name", "topic")
    )


CHECK = Check(
    NAME,
    "The registry and the brokers contradict each other.",
    run,
    needs={"brokers": "bool_or(coalesce(role, '') <> 'STORE')", "registry_topics": "count(1) > 0"},
)
