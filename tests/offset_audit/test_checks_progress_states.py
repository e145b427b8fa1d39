"""States of random tables are those that a plain reading of the rules gives, row by row."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import Row

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.frames.frame import Engine
from tests.offset_audit.progress_runs import ProgressRun
from tests.offset_audit.table_builders import NOW_MS, TableRows

pytestmark = pytest.mark.slow

GROUPS = 400
LIMITS = Limits(
    now_ms=NOW_MS,
    lag_messages=50,
    lag_age_ms=400_000,
    slow_messages=20,
    slow_ms=100_000,
    stuck_ms=60_000,
    stopped_ms=120_000,
    history_runs=6,
)


@dataclass
class Queue:
    """All that was made up about one group on its one queue."""

    role: str
    max_offset: int | None
    last_store_ms: int | None
    commit: dict[str, Any]
    members: int
    holder: str | None
    runs: list[dict[str, Any]] = field(default_factory=list)
    """Newest last."""


def made_up(chance: random.Random) -> Queue:
    def ago(choices: tuple[int, ...]) -> int | None:
        found = chance.choice((*choices, None))
        return None if found is None else NOW_MS - found - chance.randrange(3)

    max_offset = chance.choice((100, 130, 200, None))
    offset = chance.choice((60, 95, 100, 110))
    lag = None if max_offset is None else max_offset - offset
    queue = Queue(
        role=chance.choice(("MASTER", "MASTER", "MASTER", "SLAVE")),
        max_offset=max_offset,
        last_store_ms=ago((10_000, 59_998, 90_000)),
        commit={
            "offset": offset,
            "committed_at_ms": ago((5_000, 60_000, 119_998, 120_000, 900_000)),
            "first_unread_ms": ago((1_000, 60_000, 119_999, 399_998, 400_000)),
            "matching_unread": chance.choice((None, None, 0, lag)),
        },
        members=chance.randrange(3),
        holder=chance.choice((None, "m0")),
    )
    seen_offset, seen_lag = offset, lag or 0
    for _ in range(chance.randrange(9)):
        seen_offset -= chance.choice((0, 0, 5))
        seen_lag -= chance.choice((-3, 1, 8, 8))
        unknown = chance.random() < 0.05
        queue.runs.insert(
            0,
            {
                "committed_offset": seen_offset,
                "lag": None if unknown else seen_lag,
                "state": chance.choice(("OK", "LAGGING", "SLOW", "STUCK", "STOPPED")),
                "since_ms": chance.choice((None, NOW_MS - 5_000_000)),
            },
        )
    for age, run in enumerate(reversed(queue.runs)):
        run["run_at_ms"] = NOW_MS - (age + 1) * 40_000
    return queue


def add(rows: TableRows, name: str, queue: Queue) -> None:
    topic = f"t-{name}"
    origin = {"broker_name": "broker-s" if queue.role == "SLAVE" else "broker-a"}
    if queue.max_offset is not None:
        rows.add(
            "queues",
            topic=topic,
            max_offset=queue.max_offset,
            last_store_ms=queue.last_store_ms,
            **origin,
        )
    rows.add("topics", topic=topic, **origin)
    rows.add("commits", group=name, topic=topic, **queue.commit, **origin)
    for index in range(queue.members):
        rows.member(name, f"m{index}", topic, **origin)
    if queue.holder is not None:
        rows.add("leases", group=name, topic=topic, client_id=queue.holder, **origin)
    for run in queue.runs:
        rows.add("history", group=name, topic=topic, **run, **origin)


def oracle(queue: Queue) -> tuple[int | None, int | None, str, int]:
    """Lag, members, state and since when."""
    offset = queue.commit["offset"]
    lag = None if queue.max_offset is None else queue.max_offset - offset
    members = queue.members if queue.role == "MASTER" else None
    matching = queue.commit["matching_unread"]
    unread = None if lag is None or lag < 0 else lag if matching is None else matching
    runs = queue.runs[-LIMITS.history_runs :]
    since = waiting_since(queue, runs) if unread else None
    state = state_of(queue, unread, members, since, runs)
    if runs and runs[-1]["state"] == state and runs[-1]["since_ms"] is not None:
        began = runs[-1]["since_ms"]
    elif state in ("STUCK", "STOPPED"):
        assert since is not None
        began = since
    else:
        began = NOW_MS
    return lag, members, state, began


def waiting_since(queue: Queue, runs: list[dict[str, Any]]) -> int | None:
    committed, first = queue.commit["committed_at_ms"], queue.commit["first_unread_ms"]
    if committed is not None and first is not None:
        return int(max(committed, first))
    witnesses = []
    if committed is not None and queue.last_store_ms is not None:
        witnesses.append(max(committed, queue.last_store_ms))
    for run in reversed(runs):
        if run["committed_offset"] != queue.commit["offset"] or run["lag"] in range(-99, 1):
            break
        standing = run["run_at_ms"]
        witnesses = [*witnesses[:1], standing] if committed is not None else [standing]
    return min(witnesses, default=None)


def state_of(
    queue: Queue,
    unread: int | None,
    members: int | None,
    since: int | None,
    runs: list[dict[str, Any]],
) -> str:
    if unread is None:
        return "UNKNOWN"
    if unread == 0:
        return "OK"
    waited = -1 if since is None else NOW_MS - since
    if members == 0 and waited >= LIMITS.stopped_ms:
        return "STOPPED"
    if members is not None and members > 0 and waited >= LIMITS.stuck_ms:
        return "STUCK"
    rising: list[dict[str, Any]] = []
    above = unread
    for run in reversed(runs):
        if run["lag"] is None or run["lag"] >= above:
            break
        above = run["lag"]
        rising.append(run)
    if (
        unread >= LIMITS.slow_messages
        and len(rising) >= LIMITS.slow_runs
        and NOW_MS - rising[-1]["run_at_ms"] >= LIMITS.slow_ms
        and queue.commit["offset"] > rising[-1]["committed_offset"]
    ):
        return "SLOW"
    first = queue.commit["first_unread_ms"]
    is_old = first is not None and NOW_MS - first >= LIMITS.lag_age_ms
    return "LAGGING" if unread >= LIMITS.lag_messages or is_old else "OK"


@pytest.mark.thorough
def test_states_are_those_of_the_rules_on_random_tables(engine: Engine) -> None:
    chance = random.Random(20_261_121)
    queues = {f"g{number}": made_up(chance) for number in range(GROUPS)}
    rows = TableRows()
    rows.add("brokers")
    rows.add("brokers", broker_name="broker-s", role="SLAVE")
    for name, queue in queues.items():
        add(rows, name, queue)
    found: dict[str, Row] = {}
    run = ProgressRun(engine, rows, LIMITS, with_findings=False, is_large=True)
    for row in run.states:
        assert row.group not in found, "one row for each group and queue"
        found[row.group] = row
    assert found.keys() == queues.keys()
    wrong = {
        name: (told, oracle(queue), queue)
        for name, queue in queues.items()
        if (told := (found[name].lag, found[name].members, found[name].state, found[name].since_ms))
        != oracle(queue)
    }
    assert not wrong, next(iter(wrong.items()))
    assert {row.state for row in found.values()} == {
        "OK",
        "LAGGING",
        "SLOW",
        "STUCK",
        "STOPPED",
        "UNKNOWN",
    }
