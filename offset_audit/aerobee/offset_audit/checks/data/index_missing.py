"""INDEX_MISSING: keys of records that a search would not find, and damage of the index files.

Damage of the index is reported here, not as CORRUPT, because its cost is keys: one finding for each
store covers both.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.data import fault_kinds
from aerobee.offset_audit.checks.data.stores import (
    ORIGIN,
    STORE,
    repair_command,
    still_there,
    whole_until,
    with_roles,
)
from aerobee.offset_audit.checks.finding_rows import finding_rows, sentence
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.tables import Tables

NAME = "INDEX_MISSING"
_MISSING = """cluster string, broker_name string, broker_id int, store string, keys long,
first_position long, last_position long, topics array<string>"""
_TOPICS_NAMED_MAX = 3


def run(tables: Tables, limits: Limits) -> Frame:
    """One finding for each store."""
    missing = _missing(tables, limits)
    damage = (
        tables.faults.where(F.col("kind").startswith(fault_kinds.INDEX_PREFIX))
        .groupBy(*STORE)
        .agg(
            F.count("*").alias("faults"),
            F.min_by(
                F.struct("kind", "file", "position", "detail"), F.struct("file", "position")
            ).alias("fault"),
        )
    )
    found = missing.join(damage, STORE, "full")
    return finding_rows(
        with_roles(found, tables),
        NAME,
        severity=Severity.ERROR,
        evidence=sentence(
            "{keys_told}{fault_told}; store {store}.",
            keys_told=_keys_text(),
            fault_told=_fault_text(),
        ),
        affected=F.coalesce("keys", F.lit(0)),
        command=repair_command("--rebuild-index"),
    )


def _missing(tables: Tables, limits: Limits) -> Frame:
    """Keys that are in the log but not in the index, by store."""
    if tables.key_rows is None:
        return tables.brokers.engine.frame(_MISSING, [])
    sides = tables.index_ranges.groupBy(*STORE, "block").agg(
        *(
            F.sum(F.when(F.col("source") == source, F.col(column))).alias(f"{source}_{column}")
            for source in ("LOG", "INDEX")
            for column in ("keys", "digest")
        )
    )
    differing = sides.where(
        (F.col("LOG_keys") > 0)
        & ~(
            F.col("LOG_keys").eqNullSafe(F.col("INDEX_keys"))
            & F.col("LOG_digest").eqNullSafe(F.col("INDEX_digest"))
        )
    ).select(*STORE, "block")
    until = F.broadcast(whole_until(tables, limits, "keys_until_ms"))
    settled_ms = F.lit(limits.now_ms - limits.settle_ms)
    rows = tables.key_rows(differing)
    begins = None if tables.log_begins is None else tables.log_begins()
    return (
        still_there(rows, begins, "position")
        .groupBy(*STORE, "position", "key_hash")
        .agg(
            F.count_if(F.col("source") == "LOG").alias("in_log"),
            F.count_if(F.col("source") == "INDEX").alias("in_index"),
            F.max("store_ms").alias("store_ms"),
            F.max("topic").alias("topic"),
        )
        .where((F.col("in_log") > 0) & (F.col("in_index") == 0))
        .join(until, ORIGIN, "left")
        .where(F.col("store_ms") <= F.coalesce("until_ms", settled_ms))
        .groupBy(*STORE)
        .agg(
            F.count("*").alias("keys"),
            F.min("position").alias("first_position"),
            F.max("position").alias("last_position"),
            F.sort_array(F.collect_set("topic")).alias("topics"),
        )
    )


def _keys_text() -> Column:
    topics = F.array_join(F.slice("topics", 1, _TOPICS_NAMED_MAX), ", ")
    more = F.size("topics") - _TOPICS_NAMED_MAX
    return F.when(
        F.col("keys") > 0,
        sentence(
            "A search would not find {keys|key|keys} of records between byte "
            "{first_position} and {last_position} of the log, topics {named}{more}",
            named=topics,
            more=F.when(more > 0, sentence(" and {more} more", more=more)).otherwise(""),
        ),
    ).otherwise("Every key is found, but the index is damaged")


def _fault_text() -> Column:
    fault = F.col("fault")
    return F.when(
        F.col("faults") > 0,
        sentence(
            "; {fault.kind} in {fault.file}{place}{why}{others}",
            place=F.when(
                fault.position.isNotNull(), sentence(" at byte {fault.position}")
            ).otherwise(""),
            why=F.when(fault.detail.isNotNull(), sentence(" ({fault.detail})")).otherwise(""),
            others=F.when(F.col("faults") > 1, sentence(" and {faults - 1} more")).otherwise(""),
        ),
    ).otherwise("")


CHECK = Check(
    NAME,
    "Keys of messages are not found by a search.",
    run,
    is_deep=True,
    needs={
        "index_ranges": "count(1) > 0",
        "faults": f"bool_or(startswith(kind, '{fault_kinds.INDEX_PREFIX}'))",
    },
)
