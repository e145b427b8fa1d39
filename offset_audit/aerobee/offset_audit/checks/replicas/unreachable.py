"""UNREACHABLE: an expected broker did not answer, so what only it knows is unknown."""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import IS_MASTER, REPLICA, with_small_tables
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.names import BUSY
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables

NAME: Final = "UNREACHABLE"
TITLE: Final = "A broker that should be there did not answer."
NOT_ASKED: Final = "is registered but was not asked"
NOT_REGISTERED: Final = "is a replica of the broker group but no longer registered"
COMMAND: Final = "aerobee cluster show"
IS_BUSY: Final = f"coalesce(startswith(error, '{BUSY}'), false)"
NO_ANSWER: Final = either(
    "is_busy",
    f"is busy with other audits: {{replace(error, '{BUSY}', '')}}",
    "did not answer: {error}",
)
SEVERITY: Final = "if(is_busy, 'WARNING', 'ERROR')"
"""A busy one is up and working; the next run may succeed."""
HAS_MASTER: Final = "coalesce(has_master, false)"
AFFECTED: Final = f"if({HAS_MASTER}, 0, queues)"
"""Queues for which no other broker answers."""
EVIDENCE: Final = phrase(
    "{broker_name}:{broker_id}{at} {reason}{unknown}.",
    at=either("address is not null", " at {address}"),
    unknown=f"""case when {HAS_MASTER}
            then '; the group\\'s master answers, so its queues are known'
        when queues is not null then {
        phrase(
            "; no master of the group answers: the state of {held} of {spread} is not known",
            held=either("queues = 1", "1 queue", "{queues} queues"),
            spread=either("topics = 1", "1 topic", "{topics} topics"),
        )
    }
        else '; what it holds is not known' end""",
)


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each broker that did not answer; it explains everything that is unknown
    because of it."""
    tables = with_small_tables(tables)
    live = tables.brokers.where("role is null or role <> 'STORE'")
    silent = _unanswered(live).unionByName(_unasked(live, tables))
    masters = live.where(IS_MASTER).selectExpr("broker_name", "true has_master").distinct()
    leaderless = silent.select("broker_name").distinct().join(masters, "broker_name", "left_anti")
    unknown = (
        tables.registry_topics.join(leaderless, "broker_name")
        .groupBy("broker_name")
        .agg("sum(write_queue_count) queues", "count(distinct topic) topics")
    )
    return finding_rows(
        silent.join(unknown, "broker_name", "left").join(masters, "broker_name", "left"),
        NAME,
        severity=SEVERITY,
        evidence=EVIDENCE,
        affected=AFFECTED,
        command=COMMAND,
    )


_COLUMNS: Final = (*REPLICA, "address", "role", "epoch", "reason", "is_busy")


def _unanswered(live: Frame) -> Frame:
    """Brokers that were asked; one row each, however often they are named."""
    answered = live.where("answered and address is not null").selectExpr("address a").distinct()
    return (
        live.where("not coalesce(answered, false)")
        .join_where(answered, [F.col("address") == F.col("a")], "left_anti")
        .groupBy(*REPLICA, "address")
        .agg("first(role, true) role", "max(epoch) epoch", "first(error, true) error")
        .withColumn("is_busy", IS_BUSY)
        .withColumn("reason", NO_ANSWER)
        .select(*_COLUMNS)
    )


def _unasked(live: Frame, tables: Tables) -> Frame:
    """Replicas that the registry's groups expect but whose address is unknown, and registered ones
    that were not asked. Without any live broker nothing was expected to answer."""
    replica = ["broker_name", "broker_id"]
    registered = tables.registry_brokers.selectExpr(
        "cluster", *replica, "address", "role", "epoch", f"'{NOT_ASKED}' reason"
    )
    expected = tables.registry_groups.selectExpr(
        *("cluster", "broker_name", "explode(replicas) broker_id"),
        *("cast(null as string) address", "cast(null as string) role", "epoch"),
        f"'{NOT_REGISTERED}' reason",
    )
    asked = live.where("broker_id is not null").select(*replica)
    return (
        expected.join(registered, replica, "left_anti")
        .unionByName(registered)
        .join(asked, replica, "left_anti")
        .dropDuplicates(replica)
        .crossJoin(live.limit(1).selectExpr("1 one"))
        .withColumn("is_busy", "false")
        .select(*_COLUMNS)
    )


CHECK = Check(
    NAME,
    TITLE,
    run,
    needs={"brokers": "bool_or(coalesce(role, '') <> 'STORE')"},
)
