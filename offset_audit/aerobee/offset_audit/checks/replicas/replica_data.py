"""REPLICA_DATA: ranges of the log whose bytes differ between replicas of one group.

Damage that a reader located in one of the replicas (CORRUPT) explains the range around it, and is
not reported a second time.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import (
    command_line,
    finding_rows,
    sentence,
)
from aerobee.offset_audit.checks.replicas.leaders import GROUP, heard_replicas, leader_ids
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column, Window
from aerobee.offset_audit.tables import Tables

NAME = "REPLICA_DATA"
RANGE = [*GROUP, "begin", "end"]
COPY = [*GROUP, "broker_id", "store"]
"""One place where a replica's log was read: its broker, or its folder."""
_COPY = f"concat_ws('|', {', '.join(COPY)})"


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each copy of a log that differs from the master's, or from the majority."""
    differing = _without_explained(_differing(tables), tables)
    by_copy = differing.groupBy(*COPY).agg(
        F.count("*").alias("ranges"),
        F.min_by(F.struct(*_TOLD), F.col("begin")).alias("first"),
        F.max("end").alias("last_end"),
        F.try_sum(F.try_subtract(F.col("end"), F.col("begin"))).alias("bytes"),
    )
    roles = heard_replicas(tables).groupBy(*GROUP, "broker_id").agg(F.max("role").alias("role"))
    found = by_copy.join(F.broadcast(roles), [*GROUP, "broker_id"], "left")
    other = sentence(
        "{broker_name}:{first.reference_id}{folder}",
        folder=F.when(
            F.col("first.reference_store").isNotNull(),
            sentence(" ({first.reference_store})"),
        ).otherwise(""),
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.CRITICAL,
        evidence=sentence(
            "{ranges|range of the log differs|ranges of the log differ} from "
            "{other}'s, {bytes} bytes in all, up to byte {last_end}; the first from "
            "byte {first.begin} to {first.end}: CRC-32 {here} here{folder}, {there} "
            "there{records}",
            other=other,
            here=_hex(F.col("first.checksum")),
            folder=_where(),
            there=_hex(F.col("first.reference_checksum")),
            records=F.coalesce(
                F.concat(
                    F.lit("; records: "),
                    F.col("first.records"),
                    F.lit(" here, "),
                    F.col("first.reference_records"),
                    F.lit(" there."),
                ),
                # Brokers do not count them.
                F.lit("."),
            ),
        ),
        affected=F.col("ranges"),
        command=command_line("aerobee store verify", "store", otherwise="aerobee cluster show"),
    )


_TOLD = (
    "begin",
    "end",
    "checksum",
    "records",
    "reference_id",
    "reference_store",
    "reference_checksum",
    "reference_records",
)


def _differing(tables: Tables) -> Frame:
    """Ranges present in full in several copies with different bytes: all except the reference's.

    The reference is the master's copy; where no master has one, the bytes that most copies have.
    """
    whole = tables.log_ranges.where(F.col("checksum").isNotNull())
    same_range = Window.partitionBy(*RANGE)
    compared = (
        whole.withColumn("least", F.min("checksum").over(same_range))
        .withColumn("most", F.max("checksum").over(same_range))
        .where(F.col("least") != F.col("most"))
        .join(F.broadcast(leader_ids(tables)), GROUP, "left")
        .withColumn("votes", F.count("*").over(Window.partitionBy(*RANGE, "checksum")))
    )
    best_first = same_range.orderBy(
        F.when(
            (F.col("broker_id") == F.col("leader_id")) & (F.col("leader_role") == "MASTER"), 0
        ).otherwise(1),
        F.col("votes").desc(),
        F.col("broker_id"),
        F.col("store"),
    )
    for column, name in (
        ("broker_id", "reference_id"),
        ("store", "reference_store"),
        ("checksum", "reference_checksum"),
        ("records", "reference_records"),
    ):
        compared = compared.withColumn(name, F.first(column).over(best_first))
    return compared.where(F.col("checksum") != F.col("reference_checksum"))


def _without_explained(differing: Frame, tables: Tables) -> Frame:
    """Without ranges in which damage was located, in this copy or in the reference."""
    damage = tables.faults.where(
        F.col("position").isNotNull()
        & F.col("file").contains("commitlog")
        # A clock that was set back changes no bytes.
        & (F.col("kind") != "TIME_BACKWARD")
    ).select(
        F.col("store").alias("damaged_store"),
        F.col("position").alias("damage_begin"),
        F.try_add("position", F.greatest(F.coalesce("size", F.lit(1)), F.lit(1))).alias(
            "damage_end"
        ),
    )
    return differing.join_where(
        damage,
        [
            F.col("damaged_store").isin(F.col("store"), F.col("reference_store")),
            F.col("damage_begin") < F.col("end"),
            F.col("damage_end") > F.col("begin"),
        ],
        "left_anti",
    )


def _where() -> Column:
    return F.when(F.col("store").isNotNull(), sentence(" ({store})")).otherwise("")


def _hex(checksum: Column) -> Column:
    return F.lower(F.lpad(F.hex(checksum), 8, "0"))


CHECK = Check(
    NAME,
    "Replicas of one group have different bytes.",
    run,
    is_deep=True,
    is_live=True,
    needs={"log_ranges": f"min({_COPY}) <> max({_COPY})"},
)
