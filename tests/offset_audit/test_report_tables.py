"""From the run's tables to the report: sums are exact, the rest is bounded, nulls stay unknown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from aerobee.offset_audit.frames.frame import Engine
from aerobee.offset_audit.outputs.report.data import Bounds, Failed, ReportData
from aerobee.offset_audit.outputs.report.render import render
from tests.offset_audit.sample_report import NOW_MS, sample
from tests.offset_audit.table_builders import frame

pytestmark = pytest.mark.slow

RUN = dataclasses.replace(sample().run, run_at_ms=NOW_MS)
SMALL = Bounds(
    findings=6,
    findings_per_check=4,
    brokers=2,
    groups=3,
    topics=4,
    pairs=3,
    pairs_each=2,
    queues_each=2,
    heat_rows=2,
    heat_cells=4,
    history_runs=5,
)


def state(group: str, topic: str, queue_id: int, **others: Any) -> dict[str, Any]:
    return {
        "run_at_ms": NOW_MS,
        "broker_name": "broker-a",
        "group": group,
        "topic": topic,
        "queue_id": queue_id,
        "state": "OK",
        "members": 1,
        **others,
    }


def report(
    engine: Engine,
    *,
    states: Iterable[Mapping[str, Any]] = (),
    findings: Iterable[Mapping[str, Any]] = (),
    brokers: Iterable[Mapping[str, Any]] = (),
    queues: Iterable[Mapping[str, Any]] = (),
    history: Iterable[Mapping[str, Any]] = (),
    waiting: Iterable[Mapping[str, Any]] = (),
    failed: Iterable[Mapping[str, Any]] = (),
) -> ReportData:
    from aerobee.offset_audit import tables
    from aerobee.offset_audit.outputs.report.collect import report_data

    return report_data(
        RUN,
        states=frame(engine, tables.STATES, states),
        findings=frame(engine, tables.FINDINGS, findings),
        brokers=frame(engine, tables.BROKERS, brokers),
        queues=frame(engine, tables.QUEUES, queues),
        history=frame(engine, tables.STATES, history),
        waiting=frame(engine, "topic string, kind string, messages long", waiting),
        failed=frame(
            engine,
            "group string, sent long, finished long, waiting long, again long, dead long",
            failed,
        ),
        bounds=SMALL,
    )


@pytest.fixture(scope="module")
def crowded(engine: Engine) -> ReportData:
    """More of everything than fits."""
    states = [
        state(f"group-{g}", f"topic-{t}", q, lag=100 * g + q, first_unread_ms=NOW_MS - 1_000 * q)
        for g in range(5)
        for t in range(3)
        for q in range(9)
    ]
    states[0] |= {"state": "STUCK", "lag": 7}
    states[1] |= {"state": "UNKNOWN", "lag": None, "first_unread_ms": None}
    return report(
        engine,
        states=states,
        findings=[
            {"check": check, "severity": severity, "topic": f"t{n}", "affected": n or None}
            for check, severity, count in (("GAP", "CRITICAL", 1), ("LAG", "WARNING", 40))
            for n in range(count)
        ],
        brokers=[
            {"broker_name": "broker-a", "broker_id": n, "answered": n != 2, "in_sync": [0, 1]}
            for n in range(4)
        ],
        queues=[
            {
                "broker_name": "broker-a",
                "broker_id": replica,
                "topic": topic,
                "queue_id": q,
                "min_offset": 10,
                "max_offset": 110 - replica,
            }
            for topic in ("topic-0", "unread-topic")
            for q in range(9)
            for replica in (0, 1)
        ],
        history=[
            state("group-4", "topic-0", q, lag=run, run_at_ms=NOW_MS - run * 60_000)
            for run in range(1, 9)
            for q in range(2)
        ],
        waiting=[
            {"topic": topic, "kind": kind, "messages": messages}
            for topic, kind, messages in (
                ("topic-1", "DELAY", 4),
                ("topic-1", "TIMER", 3),
                ("elsewhere", "TIMER", 9),
            )
        ],
        failed=[
            {"group": "group-4", "sent": 40, "waiting": None, "again": 0, "dead": 1},
            {"group": "elsewhere", "waiting": 1, "again": 2, "dead": 3},
        ],
    )


@pytest.mark.thorough
def test_totals_are_of_everything_whatever_is_shown(crowded: ReportData) -> None:
    totals = crowded.totals
    assert (totals.brokers, totals.brokers_answered) == (4, 3)
    assert (totals.groups, totals.topics, totals.pairs) == (5, 2, 15)
    assert totals.progress.queues == 135
    assert totals.progress.unknown == 1
    assert totals.progress.states == {"STUCK": 1, "UNKNOWN": 1, "OK": 133}
    assert (
        totals.progress.lag
        == sum(100 * g + q for g in range(5) for _ in range(3) for q in range(9)) + 7 - 0 - 1
    )
    assert crowded.findings_total == 41


def test_each_list_is_bounded_and_begins_with_the_worst(crowded: ReportData) -> None:
    assert [one.check for one in crowded.findings] == ["GAP", "LAG", "LAG", "LAG", "LAG"]
    assert [one.affected for one in crowded.findings] == [None, 39, 38, 37, 36]
    assert [one.broker_id for one in crowded.brokers] == [2, 0]
    assert [one.group for one in crowded.groups] == ["group-0", "group-4", "group-3"]
    assert [one.progress.worst_state for one in crowded.groups] == ["STUCK", "OK", "OK"]
    assert [len(one.pairs) for one in crowded.groups] == [2, 2, 2]
    assert {len(pair.queues) for group in crowded.groups for pair in group.pairs} <= {0, 2}
    assert crowded.groups[0].pairs[0].queues[0].state == "STUCK"
    assert crowded.groups[0].pairs[0].queues[1].lag is None


def test_a_group_shows_what_it_could_not_handle(crowded: ReportData) -> None:
    failed = {one.group: one.failed for one in crowded.groups}
    assert failed == {"group-0": None, "group-4": Failed(40, None, None, 0, 1), "group-3": None}
    page = render(crowded)
    assert "<b>1</b> dead letter<" in page
    assert "to be retried" not in page, "none is"


def test_a_cell_of_the_heat_map_stands_for_neighbours_and_shows_the_worst(
    crowded: ReportData,
) -> None:
    row = crowded.heat[0]
    assert (row.group, row.topic, row.queues) == ("group-0", "topic-0", 9)
    assert [cell.queues for cell in row.cells] == [3, 3, 3]
    assert [cell.state for cell in row.cells] == ["STUCK", "OK", "OK"]
    assert [cell.lag for cell in row.cells] == [7, 5, 8]
    assert len(crowded.heat) == 2


def test_topics_without_groups_are_shown_and_replicas_count_once(crowded: ReportData) -> None:
    by_name = {one.topic: one for one in crowded.topics}
    assert by_name["topic-0"].messages == by_name["unread-topic"].messages == 900
    assert by_name["topic-1"].messages is None
    assert (by_name["unread-topic"].groups, by_name["topic-0"].groups) == (0, 5)


def test_what_waits_for_a_topic_is_the_sum_of_all_kinds(crowded: ReportData) -> None:
    assert {one.topic: one.waiting for one in crowded.topics if one.waiting} == {"topic-1": 7}


def test_lag_over_time_is_the_sum_of_a_groups_queues_in_the_latest_runs(
    crowded: ReportData,
) -> None:
    points = next(one for one in crowded.groups if one.group == "group-4").points
    assert [point.lag for point in points] == [10, 8, 6, 4, 2, 3 * sum(range(400, 409))]
    assert points[-1].run_at_ms == NOW_MS
    assert points[-1].age_ms == 8_000
    assert points[0].age_ms is None


def test_nothing_read_gives_an_empty_report(engine: Engine) -> None:
    data = report(engine)
    assert data.totals.progress.lag is None
    assert (data.findings, data.groups, data.topics, data.heat) == ((), (), (), ())
