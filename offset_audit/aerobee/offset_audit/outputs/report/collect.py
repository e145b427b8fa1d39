"""From the run's tables to the report's values: two Spark jobs, both bounded by top-N.

Each small question becomes rows of (part, JSON); their union is one job. The second asks for queues
and history of those groups and topics that the first has chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column, Window
from aerobee.offset_audit.outputs.report.assemble import Rows, assemble, chosen_pairs, chosen_topics
from aerobee.offset_audit.outputs.report.data import (
    SEVERITIES,
    STATES,
    Bounds,
    ReportData,
    RunFacts,
)
from aerobee.offset_audit.outputs.together import rank

_PAIR = ("group", "topic")


def report_data(
    run: RunFacts,
    *,
    states: Frame,
    findings: Frame,
    brokers: Frame,
    queues: Frame,
    history: Frame,
    waiting: Frame,
    failed: Frame,
    bounds: Bounds | None = None,
) -> ReportData:
    """`states` and `findings` of this run, `brokers` and `queues` as read, `history`: STATES of
    earlier runs, `waiting`, `failed`: from `waiting_by_topic`, `failed_by_group`. Persist them
    first if they are expensive: each is read a few times."""
    bounds = bounds or Bounds()
    pairs = _pairs(states)
    first = states.engine.collect(
        {
            "counts": findings.groupBy("check", "severity").agg(
                F.count("*").alias("findings"), F.try_sum("affected").alias("affected")
            ),
            "findings": _worst_findings(findings, bounds),
            "broker_totals": brokers.agg(
                F.count("*").alias("brokers"),
                F.sum(F.col("answered").cast("int")).alias("answered"),
            ),
            "brokers": _brokers(brokers, bounds),
            "totals": pairs.agg(*_sums(), F.count_distinct("group").alias("groups")),
            "groups": pairs.groupBy("group")
            .agg(*_sums(), F.max("members").alias("members"))
            .orderBy(*_attention(("group",)))
            .limit(bounds.groups),
            "topics": pairs.groupBy("topic")
            .agg(*_sums())
            .orderBy(*_attention(("topic",)))
            .limit(bounds.topics),
            "pairs": pairs.orderBy(*_attention(_PAIR)).limit(bounds.pairs),
            "topic_total": queues.agg(F.count_distinct("topic").alias("topics")),
            "largest": _stored(queues)
            .orderBy(F.desc_nulls_last("messages"), "topic")
            .limit(bounds.topics),
        },
        keeps_nulls=False,
    )
    second = states.engine.collect(
        _details(states, queues, history, waiting, failed, run, first, bounds), keeps_nulls=False
    )
    return assemble(run, first, second, bounds)


def _details(
    states: Frame,
    queues: Frame,
    history: Frame,
    waiting: Frame,
    failed: Frame,
    run: RunFacts,
    first: Rows,
    bounds: Bounds,
) -> dict[str, Frame]:
    """Queues, heat map and lag over time for what the first job has chosen."""
    wanted = chosen_pairs(first, bounds)
    columns = "group string, topic string, place int"
    chosen = F.broadcast(
        states.engine.frame(columns, [(*pair, n) for n, pair in enumerate(wanted)])
    )
    with_place = states.join(chosen, list(_PAIR))
    groups = [row["group"] for row in first["groups"]]
    topics = chosen_topics(first, bounds)
    runs = (
        history.select("run_at_ms")
        .distinct()
        .orderBy(F.desc("run_at_ms"))
        .limit(bounds.history_runs)
    )
    earlier = history.where(F.col("group").isin(groups)).join(F.broadcast(runs), "run_at_ms")
    return {
        "pairs": _pairs_of(states, groups, topics, bounds),
        "stored": _stored(queues.where(F.col("topic").isin(topics))),
        "waiting": waiting.where(F.col("topic").isin(topics))
        .groupBy("topic")
        .agg(F.sum("messages").alias("messages")),
        "failed": failed.where(F.col("group").isin(groups))
        .groupBy("group")
        .agg(
            *(F.sum(name).alias(name) for name in ("sent", "finished", "waiting", "again", "dead"))
        ),
        "queues": _worst_queues(with_place, bounds),
        "cells": _cells(with_place.where(F.col("place") < bounds.heat_rows), bounds),
        "points": _points(earlier, F.col("run_at_ms")).unionByName(
            _points(states.where(F.col("group").isin(groups)), F.lit(run.run_at_ms))
        ),
    }


def _worst_findings(findings: Frame, bounds: Bounds) -> Frame:
    """Worst first; no check crowds the others out."""
    order = (
        F.col("severity_rank"),
        F.desc_nulls_last("affected"),
        F.col("broker_name"),
        F.col("topic"),
        F.col("group"),
        F.col("queue_id"),
    )
    ranked = findings.withColumn("severity_rank", rank("severity", SEVERITIES)).withColumn(
        "in_check", F.row_number().over(Window.partitionBy("check", "severity").orderBy(*order))
    )
    few = ranked.where(F.col("in_check") <= bounds.findings_per_check)
    return few.orderBy("severity_rank", "in_check", "check").limit(bounds.findings)


def _brokers(brokers: Frame, bounds: Bounds) -> Frame:
    """Those that did not answer first."""
    return brokers.orderBy("answered", "broker_name", "broker_id").limit(bounds.brokers)


def _sums() -> tuple[Column, ...]:
    return (
        F.sum("queues").alias("queues"),
        F.sum("lag").alias("lag"),
        F.sum("matching_lag").alias("matching_lag"),
        F.sum("unknown").alias("unknown"),
        F.min("first_unread_ms").alias("first_unread_ms"),
        F.count("*").alias("pairs"),
        *(F.sum(f"queues_{state}").alias(f"queues_{state}") for state in STATES),
    )


def _attention(names: Sequence[str]) -> tuple[Column, ...]:
    """What needs attention first: the worst state of any queue, then the lag."""
    worst = F.lit(len(STATES))
    for place, state in reversed(list(enumerate(STATES))):
        worst = F.when(F.col(f"queues_{state}") > 0, F.lit(place)).otherwise(worst)
    return (worst, F.desc_nulls_last("lag"), *(F.col(name) for name in names))


def _pairs(states: Frame) -> Frame:
    """One row for each group and topic: the only pass over all states of the first job."""
    return states.groupBy(*_PAIR).agg(
        F.count("*").alias("queues"),
        F.sum("lag").alias("lag"),
        F.sum("matching_lag").alias("matching_lag"),
        F.sum(F.col("lag").isNull().cast("int")).alias("unknown"),
        F.min("first_unread_ms").alias("first_unread_ms"),
        F.max("members").alias("members"),
        *(
            F.sum((F.col("state") == state).cast("int")).alias(f"queues_{state}")
            for state in STATES
        ),
    )


def _pairs_of(states: Frame, groups: list[str], topics: list[str], bounds: Bounds) -> Frame:
    """The worst topics of each chosen group, and the worst groups of each chosen topic."""
    is_wanted = F.col("group").isin(groups) | F.col("topic").isin(topics)
    order = _attention(_PAIR)
    ranked = (
        _pairs(states.where(is_wanted))
        .withColumn("in_group", F.row_number().over(Window.partitionBy("group").orderBy(*order)))
        .withColumn("in_topic", F.row_number().over(Window.partitionBy("topic").orderBy(*order)))
    )
    each = bounds.pairs_each
    return ranked.where(
        (F.col("group").isin(groups) & (F.col("in_group") <= each))
        | (F.col("topic").isin(topics) & (F.col("in_topic") <= each))
    )


def _stored(queues: Frame) -> Frame:
    """Messages by topic; replicas of a queue count once."""
    once = queues.groupBy("broker_name", "topic", "queue_id").agg(
        F.min("min_offset").alias("min_offset"), F.max("max_offset").alias("max_offset")
    )
    return once.groupBy("topic").agg(
        F.sum(F.col("max_offset") - F.col("min_offset")).alias("messages"),
        F.count("*").alias("queues"),
    )


def _worst_queues(states: Frame, bounds: Bounds) -> Frame:
    order = (
        rank("state", STATES),
        F.desc_nulls_last("lag"),
        F.col("broker_name"),
        F.col("queue_id"),
    )
    ranked = states.withColumn(
        "in_pair", F.row_number().over(Window.partitionBy("place").orderBy(*order))
    )
    return ranked.where(F.col("in_pair") <= bounds.queues_each)


def _cells(states: Frame, bounds: Bounds) -> Frame:
    """At most `heat_cells` for each row: neighbours share a cell if there are more queues."""
    row = Window.partitionBy("place")
    in_order = row.orderBy("broker_name", "queue_id")
    placed = states.withColumn("number", F.row_number().over(in_order) - 1).withColumn(
        "row_queues", F.count("*").over(row)
    )
    cells_max = F.lit(bounds.heat_cells)
    each = F.ceil(F.col("row_queues") / cells_max)
    worst = F.struct(
        -rank("state", STATES), F.coalesce("lag", F.lit(-1)), "broker_name", "queue_id", "state"
    )
    cells = placed.groupBy("place", F.floor(F.col("number") / each).alias("cell")).agg(
        F.count("*").alias("queues"),
        F.max("lag").alias("lag"),
        F.min("first_unread_ms").alias("first_unread_ms"),
        F.max(worst).alias("worst"),
        F.first("row_queues").alias("row_queues"),
    )
    return cells.select(
        "place", "cell", "queues", "lag", "first_unread_ms", "row_queues", "worst.*"
    ).drop("col1", "col2")


def _points(states: Frame, run_at_ms: Column) -> Frame:
    return (
        states.withColumn("at_ms", run_at_ms)
        .groupBy("group", "at_ms")
        .agg(
            F.sum("lag").alias("lag"),
            F.max(F.col("at_ms") - F.col("first_unread_ms")).alias("age_ms"),
            F.sum(F.col("lag").isNotNull().cast("int")).alias("known"),
        )
    )
