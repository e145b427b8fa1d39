"""REPLICA_DATA: ranges of the log whose bytes differ between replicas of one group.

Damage that a reader located in one of the replicas (CORRUPT) explains the range around it, and is
not reported a second time.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import GROUP, heard_replicas, leader_ids
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables

NAME = "REPLICA_DATA"
COPY = [*GROUP, "broker_id", "store"]
"""One place where a replica's log was read: its broker, or its folder."""
_COPY = f"concat_ws('|', {', '.join(COPY)})"
_RANGE: Final = f"{', '.join(GROUP)}, begin, `end`"
_REFERENCE: Final = {
    "reference_id": "broker_id",
    "reference_store": "store",
    "reference_checksum": "checksum",
    "reference_records": "records",
}


def _hex(checksum: str) -> str:
    return f"coalesce(lower(lpad(hex({checksum}), 8, '0')), '?')"


_EVIDENCE: Final = phrase(
    "{ranges|range of the log differs|ranges of the log differ} from {broker_name}:"
    "{first.reference_id}{other_folder}'s, {bytes} bytes in all, up to byte {last_end}; the first "
    "from byte {first.begin} to {first.`end`}: CRC-32 {here} here{folder}, {there} there{records}",
    other_folder=either("first.reference_store is not null", " ({first.reference_store})"),
    here=_hex("first.checksum"),
    folder=either("store is not null", " ({store})"),
    there=_hex("first.reference_checksum"),
    # Brokers do not count them.
    records="""coalesce(concat('; records: ', first.records, ' here, ', first.reference_records,
        ' there.'), '.')""",
)


def run(tables: Tables, _limits: Limits) -> Frame:
    """One finding for each copy of a log that differs from the master's, or from the majority."""
    by_copy = (
        _without_explained(_differing(tables), tables)
        .groupBy(*COPY)
        .agg(
            "count(1) ranges",
            f"""min_by(struct(begin, `end`, checksum, records, {", ".join(_REFERENCE)}), begin)
                first""",
            "max(`end`) last_end",
            "try_sum(try_subtract(`end`, begin)) bytes",
        )
    )
    roles = heard_replicas(tables).groupBy(*GROUP, "broker_id").agg("max(role) role")
    return finding_rows(
        by_copy.join(F.broadcast(roles), [*GROUP, "broker_id"], "left"),
        NAME,
        severity=Severity.CRITICAL,
        evidence=_EVIDENCE,
        affected="ranges",
        command="aerobee store verify {store}",
        otherwise="aerobee cluster show",
    )


def _differing(tables: Tables) -> Frame:
    """Ranges present in full in several copies with different bytes: all except the reference's.

    The reference is the master's copy; where no master has one, the bytes that most copies have.
    """
    of_range = f"over (partition by {_RANGE})"
    best_first = f"""over (partition by {_RANGE} order by
        if(broker_id = leader_id and leader_role = 'MASTER', 0, 1), votes desc nulls last,
        broker_id, store)"""
    return (
        tables.log_ranges.where("checksum is not null")
        .withColumns(
            {
                "least_checksum": f"min(checksum) {of_range}",
                "most_checksum": f"max(checksum) {of_range}",
            }
        )
        .where("least_checksum <> most_checksum")
        .join(F.broadcast(leader_ids(tables)), GROUP, "left")
        .withColumn("votes", f"count(1) over (partition by {_RANGE}, checksum)")
        .withColumns(
            {name: f"first({column}, false) {best_first}" for name, column in _REFERENCE.items()}
        )
        .where("checksum <> reference_checksum")
    )


def _without_explained(differing: Frame, tables: Tables) -> Frame:
    """Without ranges in which damage was located, in this copy or in the reference."""
    # A clock that was set back changes no bytes.
    damage = tables.faults.where(
        "position is not null and contains(file, 'commitlog') and kind <> 'TIME_BACKWARD'"
    ).selectExpr(
        "store damaged_store",
        "position damage_begin",
        "try_add(position, greatest(coalesce(size, 1), 1)) damage_end",
    )
    explained = F.expr(
        "damaged_store in (store, reference_store) and damage_begin < `end` and damage_end > begin"
    )
    return differing.join_where(damage, [explained], "left_anti")


CHECK = Check(
    NAME,
    "Replicas of one group have different bytes.",
    run,
    is_deep=True,
    is_live=True,
    needs={"log_ranges": f"min({_COPY}) <> max({_COPY})"},
)
