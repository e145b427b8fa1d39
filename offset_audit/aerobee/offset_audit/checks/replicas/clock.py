"""CLOCK: a broker's clock that is wrong now, or was once: then times run backwards in its log.

A broker stamps its reading with its own clock between the moments at which the reader asked and was
answered, so a stamp outside of them is wrong by at least the distance. All replicas of a group have
the same records: a step in the log is one finding, however it is detected.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check, Limits, Severity
from aerobee.offset_audit.checks.finding_rows import (
    finding_rows,
    sentence,
)
from aerobee.offset_audit.checks.replicas.leaders import GROUP, REPLICA, with_small_tables
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame, union
from aerobee.offset_audit.frames.functions import Column, Window
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


def run(tables: Tables, limits: Limits) -> Frame:
    """One finding for each broker whose clock is wrong, and for each group whose log has steps."""
    tables = with_small_tables(tables)
    return _wrong_now(tables, limits).unionByName(_stepped_back(tables, limits))


def _wrong_now(tables: Tables, limits: Limits) -> Frame:
    judged = (
        tables.brokers.where(F.col("answered") & (F.col("role") != "STORE"))
        .withColumn("behind_ms", F.expr(BEHIND))
        .withColumn("ahead_ms", F.expr(AHEAD))
        .withColumn("off_ms", F.expr(OFF))
    )
    by_place = Window.partitionBy(*REPLICA).orderBy(F.abs("off_ms").desc(), F.col("address"))
    everybody = Window.partitionBy(F.lit(1))
    found = (
        judged.where(F.col("off_ms").isNotNull())
        .withColumn("place", F.row_number().over(by_place))
        .where("place = 1")
        .withColumn("is_wrong", F.expr(IS_WRONG.format(**numbers_of(limits))))
        # Judged in one partition: there is one row for each broker.
        .withColumn("brokers", F.count("*").over(everybody))
        .withColumn("wrong", F.count_if("is_wrong").over(everybody))
        .where("is_wrong")
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.WARNING,
        evidence=F.expr(EVIDENCE),
        affected=F.expr(SIZE),
        command=COMMAND,
    )


def _stepped_back(tables: Tables, limits: Limits) -> Frame:
    coarse = union([_segments(tables), _ranges(tables), _minutes_ahead(tables, limits)])
    # A damaged record's time, which affects the bounds of its range or minute, is not a step.
    damaged = tables.faults.where(F.col("kind") == "BAD_TIME").select(*REPLICA).distinct()
    steps = (
        _faults(tables)
        .unionByName(coarse.join(F.broadcast(damaged), REPLICA, "left_anti"))
        .where(F.col("back_ms") > limits.clock_skew_ms)
    )
    # A step has one exact place if a reader of records saw it; the coarse ones repeat it.
    exact_first = F.struct("rank", -F.col("back_ms"), "position", "broker_id")
    by_group = Window.partitionBy(*GROUP)
    found = (
        steps.withColumn("best", F.min("rank").over(by_group))
        .where(F.col("rank") == F.col("best"))
        .groupBy(*GROUP)
        .agg(
            F.count_distinct("position").alias("steps"),
            F.min_by(F.struct("broker_id", "position", "back_ms", "what"), exact_first).alias(
                "worst"
            ),
        )
        .withColumn("broker_id", F.col("worst.broker_id"))
    )
    return finding_rows(
        found,
        NAME,
        severity=Severity.WARNING,
        evidence=sentence(
            "The clock was set back {steps|time|times} while messages were stored, by "
            "up to {worst.back_ms} ms: {worst.what}."
        ),
        affected=F.col("steps"),
        command=COMMAND,
    )


def _step(rows: Frame, rank: int, what: Column) -> Frame:
    return rows.select(
        *REPLICA, F.lit(rank).alias("rank"), "position", "back_ms", what.alias("what")
    )


def _faults(tables: Tables) -> Frame:
    """Reported by a reader of records, exactly."""
    rows = tables.faults.where(F.col("kind") == "TIME_BACKWARD")
    return _step(
        rows,
        0,
        sentence(
            "the record at byte {position} of the log has an earlier store time than "
            "the previous one"
        ),
    )


def _ranges(tables: Tables) -> Frame:
    """From one range of the log to the next."""
    order = Window.partitionBy(*REPLICA, "store").orderBy("begin")
    rows = (
        tables.log_ranges.where(F.col("last_store_ms").isNotNull())
        .withColumn(
            "before_ms",
            F.max("last_store_ms").over(order.rowsBetween(Window.unboundedPreceding, -1)),
        )
        .withColumn("position", F.col("begin"))
        .withColumn("back_ms", F.try_subtract(F.col("before_ms"), F.col("first_store_ms")))
    )
    return _step(
        rows,
        1,
        sentence(
            "the range from byte {position} begins at {first_store_ms|instant}, after "
            "{before_ms|instant}"
        ),
    )


def _segments(tables: Tables) -> Frame:
    """From one segment's first record to the next's."""
    order = Window.partitionBy(*REPLICA).orderBy("position")
    rows = (
        tables.segments.where(F.col("first_store_ms") > 0)
        .select(*REPLICA, "position", "first_store_ms")
        .distinct()
        .withColumn(
            "before_ms",
            F.max("first_store_ms").over(order.rowsBetween(Window.unboundedPreceding, -1)),
        )
        .withColumn("back_ms", F.try_subtract(F.col("before_ms"), F.col("first_store_ms")))
    )
    return _step(
        rows,
        2,
        sentence(
            "the segment at byte {position} begins at {first_store_ms|instant}, an "
            "earlier one at {before_ms|instant}"
        ),
    )


def _minutes_ahead(tables: Tables, limits: Limits) -> Frame:
    """Messages stored in a minute that is still in the future. If the broker's own clock is ahead,
    that clock is wrong now, and is reported as such."""
    own_clocks = F.broadcast(
        tables.brokers.where(F.col("answered") & (F.col("role") != "STORE"))
        .groupBy(*REPLICA)
        .agg(F.max("ends_read_at_ms").alias("own_ms"))
    )
    rows = (
        tables.minutes.where(F.col("tier").isin("ACKNOWLEDGED", "STORED") & (F.col("messages") > 0))
        .groupBy(*REPLICA)
        .agg(F.max("minute").alias("minute"))
        .join(own_clocks, REPLICA, "left")
        .where(
            F.coalesce(
                F.try_multiply(F.col("minute"), F.lit(60_000)) > F.col("own_ms"), F.lit(True)
            )
        )
        .withColumn("position", F.lit(None).cast("long"))
        .withColumn(
            "back_ms",
            F.try_subtract(F.try_multiply(F.col("minute"), F.lit(60_000)), F.lit(limits.now_ms)),
        )
    )
    return _step(
        rows,
        3,
        sentence(
            "messages were stored at {try_multiply(minute, 60000)|instant}, which is in the future",
        ),
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
