"""From the run's tables to the report's values: two Spark jobs, both bounded by top-N.

Each small question becomes rows of (part, JSON); their union is one job. The second asks for queues
and history of those groups and topics that the first has chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
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
                "count(1) findings", "try_sum(affected) affected"
            ),
            "findings": _worst_findings(findings, bounds),
            "broker_totals": brokers.agg("count(1) brokers", "sum(cast(answered as int)) answered"),
            "brokers": _brokers(brokers, bounds),
            "totals": pairs.agg(*_sums(), "count(distinct group) groups"),
            "groups": pairs.groupBy("group")
            .agg(*_sums(), "max(members) members")
            .orderBy(*_attention(("group",)))
            .limit(bounds.groups),
            "topics": pairs.groupBy("topic")
            .agg(*_sums())
            .orderBy(*_attention(("topic",)))
            .limit(bounds.topics),
            "pairs": pairs.orderBy(*_attention(_PAIR)).limit(bounds.pairs),
            "topic_total": queues.agg("count(distinct topic) topics"),
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
        .agg("sum(messages) messages"),
        "failed": failed.where(F.col("group").isin(groups))
        .groupBy("group")
        .agg(*(f"sum({name}) {name}" for name in ("sent", "finished", "waiting", "again", "dead"))),
        "queues": _worst_queues(with_place, bounds),
        "cells": _cells(with_place.where(f"place < {bounds.heat_rows}"), bounds),
        "points": _points(earlier, "run_at_ms").unionByName(
            _points(states.where(F.col("group").isin(groups)), str(run.run_at_ms))
        ),
    }


def _worst_findings(findings: Frame, bounds: Bounds) -> Frame:
    """Worst first; no check crowds the others out."""
    order = "severity_rank, affected desc nulls last, broker_name, topic, group, queue_id"
    return (
        findings.withColumn("severity_rank", rank("severity", SEVERITIES))
        .withColumn("in_check", _place_in("check, severity", order))
        .where(f"in_check <= {bounds.findings_per_check}")
        .orderBy("severity_rank", "in_check", "check")
        .limit(bounds.findings)
    )


def _place_in(by: str, order: str) -> str:
    return f"row_number() over (partition by {by} order by {order})"


def _brokers(brokers: Frame, bounds: Bounds) -> Frame:
    """Those that did not answer first."""
    return brokers.orderBy("answered", "broker_name", "broker_id").limit(bounds.brokers)


def _sums() -> tuple[str, ...]:
    names = ("queues", "lag", "matching_lag", "unknown", *(f"queues_{state}" for state in STATES))
    return (
        *(f"sum({name}) {name}" for name in names),
        "min(first_unread_ms) first_unread_ms",
        "count(1) pairs",
    )


_WORST: Final = " ".join(
    (
        "case",
        *(f"when queues_{state} > 0 then {n}" for n, state in enumerate(STATES)),
        f"else {len(STATES)} end",
    )
)


def _attention(names: Sequence[str]) -> tuple[Column, ...]:
    """What needs attention first: the worst state of any queue, then the lag."""
    return (F.named(_WORST), F.desc_nulls_last("lag"), *(F.col(name) for name in names))


def _pairs(states: Frame) -> Frame:
    """One row for each group and topic: the only pass over all states of the first job."""
    return states.groupBy(*_PAIR).agg(
        "count(1) queues",
        "sum(lag) lag",
        "sum(matching_lag) matching_lag",
        "count_if(lag is null) unknown",
        "min(first_unread_ms) first_unread_ms",
        "max(members) members",
        *(f"count_if(state = '{state}') queues_{state}" for state in STATES),
    )


def _pairs_of(states: Frame, groups: list[str], topics: list[str], bounds: Bounds) -> Frame:
    """The worst topics of each chosen group, and the worst groups of each chosen topic."""
    of_group, of_topic = F.col("group").isin(groups), F.col("topic").isin(topics)
    order = ", ".join(one.sql for one in _attention(_PAIR))
    each = bounds.pairs_each
    return (
        _pairs(states.where(of_group | of_topic))
        .withColumn("in_group", _place_in("group", order))
        .withColumn("in_topic", _place_in("topic", order))
        .where(
            (of_group & F.expr(f"in_group <= {each}")) | (of_topic & F.expr(f"in_topic <= {each}"))
        )
    )


def _stored(queues: Frame) -> Frame:
    """Messages by topic; replicas of a queue count once."""
    once = queues.groupBy("broker_name", "topic", "queue_id").agg(
        "min(min_offset) min_offset", "max(max_offset) max_offset"
    )
    return once.groupBy("topic").agg("sum(max_offset - min_offset) messages", "count(1) queues")


def _worst_queues(states: Frame, bounds: Bounds) -> Frame:
    order = "state_rank, lag desc nulls last, broker_name, queue_id"
    return (
        states.withColumn("state_rank", rank("state", STATES))
        .withColumn("in_pair", _place_in("place", order))
        .where(f"in_pair <= {bounds.queues_each}")
        .drop("state_rank")
    )


def _cells(states: Frame, bounds: Bounds) -> Frame:
    """At most `heat_cells` for each row: neighbours share a cell if there are more queues."""
    worst = "struct(-state_rank, coalesce(lag, -1), broker_name, queue_id, state)"
    return (
        states.withColumns(
            {
                "number": _place_in("place", "broker_name, queue_id"),
                "row_queues": "count(1) over (partition by place)",
                "state_rank": rank("state", STATES),
            }
        )
        .withColumn("cell", f"floor((number - 1) / ceil(row_queues / {bounds.heat_cells}))")
        .groupBy("place", "cell")
        .agg(
            "count(1) queues",
            "max(lag) lag",
            "min(first_unread_ms) first_unread_ms",
            f"max({worst}) worst",
            "max(row_queues) row_queues",
        )
        .selectExpr(
            *("place", "cell", "queues", "lag", "first_unread_ms", "row_queues"),
            *("worst.broker_name", "worst.queue_id", "worst.state"),
        )
    )


def _points(states: Frame, run_at_ms: str) -> Frame:
    return (
        states.withColumn("at_ms", run_at_ms)
        .groupBy("group", "at_ms")
        .agg(
            "sum(lag) lag",
            "max(at_ms - first_unread_ms) age_ms",
            "count_if(lag is not null) known",
        )
    )
