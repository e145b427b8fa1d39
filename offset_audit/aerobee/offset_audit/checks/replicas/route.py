"""ROUTE: what the registry says about brokers and topics, against what the brokers say themselves.

The registry is read before the brokers, which are read at the same time as each other: anything
that a change of master, or the deletion of a topic, between the readings may explain is INFO.
Otherwise, the next audit's registry shows it. If a broker of a group did not answer, it is unknown
whether the group has a master: UNREACHABLE reports that.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import GROUP, with_small_tables
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame, union
from aerobee.offset_audit.rules.texts import either, phrase, shell_word
from aerobee.offset_audit.tables import Tables

NAME: Final = "ROUTE"
TITLE: Final = "The registry and the brokers contradict each other."
COMMAND: Final = "aerobee cluster show"
TOPIC_COMMAND: Final = (
    f"coalesce(concat('aerobee topic show ', {shell_word('first_topic')}), '{COMMAND}')"
)
NAMED_MAX: Final = 3
_END: Final = either(
    "is_newer",
    "; a change of master since it was read may explain this: run the audit again.",
    ".",
)
IF_NEWER: Final = "if(is_newer, 'INFO', 'ERROR')"

ONE_MASTER: Final = phrase("{broker_name}:{one.broker_id} at {one.address} (epoch {one.epoch})")
IS_PROVEN: Final = (
    "epochs <= 1 or coalesce(registry_epoch >= newest_epoch, false)"
    " or coalesce(newest_answered_ms <= last_asked_ms, false)"
)
"""Masters in one epoch, or in an older one after the newest had been assigned: the registry, which
was read before, or the newest master's own answer had it before the other was asked. Otherwise the
readings may be from before and after a handover."""
TWO_SEVERITY: Final = "if(is_proven, 'CRITICAL', 'INFO')"
TWO_EVIDENCE: Final = phrase(
    "{masters} replicas of the broker group each say that they are its master: {names}{end}",
    end=either(
        "is_proven",
        ".",
        "; a hand-over while they were asked may explain this: run the audit again.",
    ),
)

OTHER_HOLDS: Final = "broker_id <> registry_master_id or epoch <> registry_epoch"
OTHER_IS_NEWER: Final = "coalesce(epoch > registry_epoch, false)"
OTHER_EVIDENCE: Final = phrase(
    "{broker_name}:{broker_id} says that it is the master of epoch {epoch}; the registry, at "
    "revision {registry_revision}, names {broker_name}:{registry_master_id}, of epoch "
    "{registry_epoch}{end}",
    end=_END,
)

NONE_IS_NEWER: Final = "coalesce(newest_epoch > registry_epoch, false)"
NONE_EVIDENCE: Final = phrase(
    "{replicas} and none is master; the registry names {master}, epoch {registry_epoch}{end}",
    replicas=either("heard = 1", "1 replica answers", "{heard} replicas answer"),
    master=either(
        "registry_master_id is not null", "{broker_name}:{registry_master_id}", "none either"
    ),
    end=_END,
)

UNKNOWN_EVIDENCE: Final = phrase(
    "{routed} routed to {broker_name}, but no broker has this name: {held}, among them "
    "{first_topic}'s.",
    routed=either("topics = 1", "1 topic is", "{topics} topics are"),
    held=either("queues = 1", "1 queue", "{queues} queues"),
)

IS_TRIMMED: Final = "min_offset = max_offset"
"""For a queue: a topic of which a broker lists only such queues, at least one of them used, has
been deleted since the registry was read."""
IS_NEW: Final = "coalesce(topic_revision > known, false)"
IF_NEW: Final = "if(is_new, 'INFO', 'ERROR')"
LACKING_EVIDENCE: Final = phrase(
    "{routed} routed to {broker_name}:{broker_id}, which does not know {which}{first_topic}{end}",
    routed=either("topics = 1", "1 topic is", "{topics} topics are"),
    which=either("topics = 1", "it: ", "them; the first: "),
    end=either("is_new", "; the broker may not know of the change yet: run the audit again.", "."),
)


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each broker group, and each name in routes, that is not as stated."""
    tables = with_small_tables(tables)
    live = tables.brokers.where(F.col("role").isNull() | (F.col("role") != "STORE"))
    parts = [
        _two_masters(live, tables),
        _other_master(live, tables),
        _no_master(live, tables),
        _unknown_brokers(live, tables),
        _lacking_topics(live, tables),
    ]
    return union(parts)


def _masters(live: Frame) -> Frame:
    """The masters of each group by their own word."""
    return (
        live.where(F.col("answered") & (F.col("role") == "MASTER"))
        .groupBy(*GROUP)
        .agg(
            # Two processes may claim one id, and one process may be known by two addresses.
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


def _two_masters(live: Frame, tables: Tables) -> Frame:
    """Several replicas that claim to be master of one group: in one epoch, or in an older one after
    the newest had been assigned. That is proved if the registry, which was read before, or the
    newest master's own answer had it before the other was asked; otherwise the readings may be from
    before and after a handover."""
    registered = _registered(tables).select("broker_name", "registry_epoch")
    found = (
        _masters(live)
        .where(F.col("masters") > 1)
        .join(registered, "broker_name", "left")
        .withColumn("is_proven", F.expr(IS_PROVEN))
        .withColumn(
            "names",
            F.expr(
                f"array_join(transform(slice(told, 1, {NAMED_MAX}), one -> {ONE_MASTER}), ', ')"
            ),
        )
    )
    return finding_rows(
        found.withColumn("role", F.lit("MASTER")),
        NAME,
        severity=F.expr(TWO_SEVERITY),
        evidence=F.expr(TWO_EVIDENCE),
        affected=F.col("masters"),
        command=COMMAND,
    )


def _registered(tables: Tables) -> Frame:
    return tables.registry_groups.groupBy("broker_name").agg(
        F.max("cluster").alias("registry_cluster"),
        F.max("revision").alias("registry_revision"),
        F.max("epoch").alias("registry_epoch"),
        F.max(F.when(F.col("master_id") >= 0, F.col("master_id"))).alias("registry_master_id"),
        F.first("replicas", ignorenulls=True).alias("replicas"),
    )


def _other_master(live: Frame, tables: Tables) -> Frame:
    """A master that the registry does not know as such, or only in another epoch. One with a newer
    epoch than the registry had when it was read may have become master since."""
    told = (
        _masters(live)
        .where(F.col("masters") == 1)
        .withColumn("broker_id", F.col("told")[0].broker_id)
        .withColumn("epoch", F.col("told")[0].epoch)
        .withColumn("role", F.lit("MASTER"))
    )
    found = (
        told.join(_registered(tables), "broker_name")
        .where(OTHER_HOLDS)
        .withColumn("is_newer", F.expr(OTHER_IS_NEWER))
    )
    return finding_rows(
        found,
        NAME,
        severity=F.expr(IF_NEWER),
        evidence=F.expr(OTHER_EVIDENCE),
        affected=F.lit(1),
        command=COMMAND,
    )


def _no_master(live: Frame, tables: Tables) -> Frame:
    """Groups in which all replicas answered, none of them as master. If one of them knows a newer
    epoch than the registry had, the master changed between the answers."""
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
    found = found.withColumn("heard", F.size("heard")).withColumn("is_newer", F.expr(NONE_IS_NEWER))
    return finding_rows(
        found,
        NAME,
        severity=F.expr(IF_NEWER),
        evidence=F.expr(NONE_EVIDENCE),
        affected=F.col("heard"),
        command=COMMAND,
    )


def _unknown_brokers(live: Frame, tables: Tables) -> Frame:
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
        evidence=F.expr(UNKNOWN_EVIDENCE),
        affected=F.col("topics"),
        command=F.expr(TOPIC_COMMAND),
    )


def _lacking_topics(live: Frame, tables: Tables) -> Frame:
    """Topics routed to a master that does not have them. A broker whose topics were not read is not
    judged, nor a topic of which it still has queues, all of them trimmed: it has been deleted since
    the registry was read."""
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
            F.bool_and(F.expr(IS_NEW)).alias("is_new"),
        )
        .select("*", "broker.*")
        .withColumn("topic", F.when(F.col("topics") == 1, F.col("first_topic")))
    )
    return finding_rows(
        found,
        NAME,
        severity=F.expr(IF_NEW),
        evidence=F.expr(LACKING_EVIDENCE),
        affected=F.col("topics"),
        command=F.expr(TOPIC_COMMAND),
    )


def _deleted_topics(tables: Tables, masters: Frame) -> Frame:
    """Topics whose queues a master still lists, without a message in any."""
    return (
        tables.queues.join(masters.select(*GROUP, "broker_id"), [*GROUP, "broker_id"], "left_semi")
        .groupBy("broker_name", "topic")
        .agg(
            F.bool_and(F.expr(IS_TRIMMED)).alias("is_trimmed"),
            F.max("max_offset").alias("end"),
        )
        .where(F.col("is_trimmed") & (F.col("end") > 0))
        .select("broker_name", "topic")
    )


CHECK = Check(
    NAME,
    TITLE,
    run,
    needs={"brokers": "bool_or(coalesce(role, '') <> 'STORE')", "registry_topics": "count(1) > 0"},
)
