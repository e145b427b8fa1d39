"""CLOCK: a broker's clock that is wrong now, or was once: then times run backwards in its log.

A broker stamps its reading with its own clock between the moments at which the reader asked and was
answered, so a stamp outside of them is wrong by at least the distance. All replicas of a group have
the same records: a step in the log is one finding, however it is detected.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import finding_rows
from aerobee.offset_audit.checks.replicas.leaders import (
    GROUP,
    IS_LIVE,
    REPLICA,
    with_small_tables,
)
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame, union
from aerobee.offset_audit.rules.rule import numbers_of
from aerobee.offset_audit.rules.texts import either, phrase
from aerobee.offset_audit.tables import Tables

NAME: Final = "CLOCK"
COMMAND: Final = "aerobee cluster show"

BEHIND: Final = "try_subtract(asked_at_ms, least(commits_read_at_ms, ends_read_at_ms))"
AHEAD: Final = "try_subtract(greatest(commits_read_at_ms, ends_read_at_ms), answered_at_ms)"
OFF: Final = "if(ahead_ms > behind_ms, ahead_ms, -behind_ms)"
"""After the columns `behind_ms` and `ahead_ms`."""
SIZE: Final = "if(off_ms < 0, -off_ms, off_ms)"
IS_WRONG: Final = (
    f"{SIZE} > {{clock_skew_ms}} and greatest(behind_ms, ahead_ms) > {{clock_skew_ms}}"
)
EVIDENCE: Final = phrase(
    "The clock of {broker_name}:{broker_id} is at least {size} ms {way}: it read "
    "{coalesce(ends_read_at_ms, commits_read_at_ms)|instant} between {asked_at_ms|instant} and "
    "{answered_at_ms|instant} here{everybody}.",
    size=SIZE,
    way=either("off_ms > 0", "ahead", "behind"),
    everybody=either(
        "brokers > 1 and wrong = brokers",
        "; the clocks of all brokers are wrong: check this machine's clock first",
    ),
)


_REPLICA: Final = ", ".join(REPLICA)


def run(tables: Tables, limits: Limits) -> Frame:
    """One finding for each broker whose clock is wrong, and for each group whose log has steps."""
    tables = with_small_tables(tables)
    return _wrong_now(tables, limits).unionByName(_stepped_back(tables, limits))


def _wrong_now(tables: Tables, limits: Limits) -> Frame:
    place = f"""row_number() over (partition by {_REPLICA}
        order by abs(off_ms) desc nulls last, address)"""
    # Judged in one partition: there is one row for each broker.
    everybody = "over (partition by 1)"
    found = (
        tables.brokers.where(IS_LIVE)
        .withColumns({"behind_ms": BEHIND, "ahead_ms": AHEAD})
        .withColumn("off_ms", OFF)
        .where("off_ms is not null")
        .withColumn("place", place)
        .where("place = 1")
        .withColumn("is_wrong", IS_WRONG.format(**numbers_of(limits)))
        .withColumns(
            {"brokers": f"count(1) {everybody}", "wrong": f"count_if(is_wrong) {everybody}"}
        )
        .where("is_wrong")
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.WARNING,
        evidence=EVIDENCE,
        affected=SIZE,
        command=COMMAND,
    )


def _stepped_back(tables: Tables, limits: Limits) -> Frame:
    coarse = union([_segments(tables), _ranges(tables), _minutes_ahead(tables, limits)])
    # A damaged record's time, which affects the bounds of its range or minute, is not a step.
    damaged = tables.faults.where("kind = 'BAD_TIME'").select(*REPLICA).distinct()
    found = (
        _faults(tables)
        .unionByName(coarse.join(F.broadcast(damaged), REPLICA, "left_anti"))
        .where(f"back_ms > {limits.clock_skew_ms}")
        # A step has one exact place if a reader of records saw it; the coarse ones repeat it.
        .withColumn("best", f"min(rank) over (partition by {', '.join(GROUP)})")
        .where("rank = best")
        .groupBy(*GROUP)
        .agg(
            "count(distinct position) steps",
            "min_by(struct(broker_id, position, back_ms, what),"
            " struct(rank, -back_ms, position, broker_id)) worst",
        )
        .withColumn("broker_id", "worst.broker_id")
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.WARNING,
        evidence=phrase(
            "The clock was set back {steps|time|times} while messages were stored, by "
            "up to {worst.back_ms} ms: {worst.what}."
        ),
        affected="steps",
        command=COMMAND,
    )


def _step(rows: Frame, rank: int, what: str) -> Frame:
    return rows.selectExpr(*REPLICA, f"{rank} rank", "position", "back_ms", f"{phrase(what)} what")


def _faults(tables: Tables) -> Frame:
    """Reported by a reader of records, exactly."""
    return _step(
        tables.faults.where("kind = 'TIME_BACKWARD'"),
        0,
        "the record at byte {position} of the log has an earlier store time than the previous one",
    )


def _ranges(tables: Tables) -> Frame:
    """From one range of the log to the next."""
    rows = tables.log_ranges.where("last_store_ms is not null").selectExpr(
        *(*REPLICA, "begin position", "first_store_ms"),
        f"""max(last_store_ms) over (partition by {_REPLICA}, store order by begin
            rows between unbounded preceding and 1 preceding) before_ms""",
    )
    return _step(
        rows.withColumn("back_ms", "try_subtract(before_ms, first_store_ms)"),
        1,
        "the range from byte {position} begins at {first_store_ms|instant}, after "
        "{before_ms|instant}",
    )


def _segments(tables: Tables) -> Frame:
    """From one segment's first record to the next's."""
    rows = (
        tables.segments.where("first_store_ms > 0")
        .select(*REPLICA, "position", "first_store_ms")
        .distinct()
        .withColumn(
            "before_ms",
            f"""max(first_store_ms) over (partition by {_REPLICA} order by position
                rows between unbounded preceding and 1 preceding)""",
        )
    )
    return _step(
        rows.withColumn("back_ms", "try_subtract(before_ms, first_store_ms)"),
        2,
        "the segment at byte {position} begins at {first_store_ms|instant}, an earlier one at "
        "{before_ms|instant}",
    )


def _minutes_ahead(tables: Tables, limits: Limits) -> Frame:
    """Messages stored in a minute that is still in the future. If the broker's own clock is ahead,
    that clock is wrong now, and is reported as such."""
    own_clocks = tables.brokers.where(IS_LIVE).groupBy(*REPLICA).agg("max(ends_read_at_ms) own_ms")
    rows = (
        tables.minutes.where("tier in ('ACKNOWLEDGED', 'STORED') and messages > 0")
        .groupBy(*REPLICA)
        .agg("max(minute) minute")
        .join(F.broadcast(own_clocks), REPLICA, "left")
        .where("coalesce(try_multiply(minute, 60000) > own_ms, true)")
        .withColumns(
            {
                "position": "cast(null as long)",
                "back_ms": f"try_subtract(try_multiply(minute, 60000), {limits.now_ms})",
            }
        )
    )
    return _step(
        rows,
        3,
        "messages were stored at {try_multiply(minute, 60000)|instant}, which is in the future",
    )


CHECK = Check(
    NAME,
    "A broker's clock is wrong, or was.",
    run,
    needs={
        "brokers": "bool_or(answered and role <> 'STORE')",
        "faults": "bool_or(kind = 'TIME_BACKWARD')",
        "log_ranges": "count(last_store_ms) > 1",
        "segments": "count(1) > 1",
        "minutes": "count(1) > 0",
    },
)
