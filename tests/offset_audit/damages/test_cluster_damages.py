"""A busy healthy cluster has no findings above INFO, even while its master changes. Then clients
and fate do eleven damages to it: these findings, and no others.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.engine import RunEngine
from aerobee.offset_audit.run.local_run import LocalRun
from tests.offset_audit.damages.auditing import audit
from tests.offset_audit.damages.busy_cluster import (
    GROUPS,
    TOPICS,
    A,
    audits_under_load,
    busy_cluster,
)
from tests.offset_audit.damages.damage import Expected, told, wanted
from tests.offset_audit.damages.live_cluster import (
    FAST,
    GAPPED,
    OLD,
    B,
    LiveCluster,
    joined_by_others,
)
from tests.support.retention import RESERVED_MS, write_times

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.timeout(900)]

STAGES = ("brokers", "offset journals")
"""At whose beginnings the master changes: once between the registry and the brokers, once between
the brokers and their journals."""
WAITED_MS = 8_000
LIMITS = {
    "lag_messages": 1_000,
    "slow_messages": 1_000,
    "slow_runs": 1,
    "slow_ms": 1_000,
    "stuck_ms": WAITED_MS,
    "stopped_ms": WAITED_MS,
    "uncommitted_ms": WAITED_MS,
    "settle_ms": 1_000,
}
BULK = 4_000
PAUSE_S = 0.4
"""What a lagging member takes for a message; it cannot come to the end while the test lasts."""
EXPECTED: dict[str, tuple[str | None, Expected]] = {
    "stopped group": (A, Expected("STOPPED", "WARNING", "events", 0, "ghost", 40, "no members")),
    "skipped by a reset": (A, Expected("SKIPPED", "WARNING", "events", 0, "skipper", 40, "reset")),
    "stuck member": (A, Expected("STUCK", "WARNING", "events", 0, "stuck", 50, "commits nothing")),
    "lagging group": (A, Expected("LAG", "WARNING", "backlog", 0, "laggard", None, "unread")),
    "slow group": (A, Expected("SLOW", "WARNING", "payments", 0, "book", None, "falls behind")),
    "uncommitted queue": (
        A,
        Expected("UNCOMMITTED_QUEUE", "WARNING", "parts", 1, "partial", 20, "never committed"),
    ),
    "removed unread": (
        OLD,
        Expected("OUT_OF_RANGE_LOW", "CRITICAL", "old", 0, "sleeper", None, "removed before"),
    ),
    "wrong clock": (FAST, Expected("CLOCK", "WARNING", None, None, None, None, "ahead")),
    "lost broker": (B, Expected("UNREACHABLE", "ERROR", None, None, None, None, B)),
    "gap in a log": (GAPPED, Expected("REPLICA_GAP", "ERROR", None, None, None, 4, "missing")),
    "two masters": (A, Expected("ROUTE", "CRITICAL", None, None, None, 2, "master")),
}
COUNTED_BY_TIME = ("LAG", "SLOW", "CLOCK", "UNREACHABLE", "OUT_OF_RANGE_LOW")
"""How many are affected depends on the moment: it is only known to be there."""

NEW_TOPICS = {"events": 1, "backlog": 1, "old": 1, "parts": 2, "doomed": 1, "quiet": 1}


async def begin(cluster: LiveCluster) -> None:
    """Messages, and groups that consume and commit."""
    for topic, each in NEW_TOPICS.items():
        await cluster.create_topic(topic, each)
    await cluster.topics_are_there(*NEW_TOPICS)
    await cluster.send("events", 50)
    await cluster.send("quiet", 5, broker=FAST)
    await cluster.send("backlog", BULK)
    for queue_id in (0, 1):
        await cluster.send("parts", 20, queue_id=queue_id)
    await cluster.send("doomed", 10)
    await cluster.commit("ghost", "events", 10)
    await cluster.commit("skipper", "events", 10)
    await cluster.commit("orphaned", "doomed", 10)
    await cluster.commit("partial", "parts", 20)
    await cluster.join_without_leases("partial", "parts")
    cluster.consume("stuck", "events", None)
    cluster.consume("laggard", "backlog", PAUSE_S)
    await cluster.committed("laggard", "backlog", 5)


async def damage(cluster: LiveCluster) -> None:
    """What operators and fate do."""
    await cluster.reset("skipper", "events", 50)
    await remove_unread(cluster)
    await cluster.delete_topic("doomed")  # takes its offsets along: no damage
    await cluster.add_second_master()
    await cluster.add_gapped_broker()
    cluster.freeze_the_lost()


async def remove_unread(cluster: LiveCluster) -> None:
    """Old segments go though a group has read five messages only."""
    await cluster.send("old", 40, broker=OLD, body=b"x" * 500)
    await cluster.commit("sleeper", "old", 5, broker=OLD)
    await cluster.send("old", 10, broker=OLD, body=b"x" * 500)
    await asyncio.sleep(0.5)
    write_times(cluster.folder / OLD, int(time.time() * 1_000) - RESERVED_MS - 1_000)
    assert await cluster.clean(OLD)


@dataclass(frozen=True, slots=True)
class Audits:
    healthy: list[Summary]
    damaged: Summary


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> Audits:
    return asyncio.run(audit_live(LocalRun(), tmp_path_factory.mktemp("live")))


async def audit_live(engine: RunEngine, folder: Path) -> Audits:
    """The master changes during each audit of the healthy cluster, and the second is compared with
    the first. The audit after the damages is compared with both, which shows who falls behind."""
    async with busy_cluster(folder) as busy:
        healthy = await audits_under_load(engine, busy, 2, dict(enumerate(STAGES)))
        await busy.load.stop_producing()
        async with joined_by_others(busy) as cluster:
            return Audits(healthy, await audit_damaged(engine, cluster))


async def audit_damaged(engine: RunEngine, cluster: LiveCluster) -> Summary:
    await begin(cluster)
    begun_s = time.monotonic()
    cluster.busy.load.slowed.add("book")
    await cluster.send("payments", BULK)
    await damage(cluster)
    await asyncio.sleep(max(0.0, begun_s + WAITED_MS / 1_000 + 1 - time.monotonic()))
    request = replace(cluster.busy.request, limits=LIMITS, source_options={"timeoutMs": "3000"})
    return await asyncio.to_thread(audit, engine, request)


def assert_nothing_found(summaries: Sequence[Summary]) -> None:
    for summary in summaries:
        told = [
            f"{one['check']}: {one['evidence']}"
            for one in summary.findings
            if one["severity"] != "INFO"
        ]
        assert not told, "\n".join(told)
        assert summary.exit_code == 0
        assert (summary.brokers_total, summary.brokers_answered) == (2, 2)
        assert {one["role"] for one in summary.brokers} == {"MASTER", "SLAVE"}
        # Each group also has the queue of what failed.
        queues = sum(TOPICS[topic] + 1 for topic, _ in GROUPS.values())
        assert summary.states["OK"] == queues
    assert len({summary.run_id for summary in summaries}) == len(summaries)


def test_audits_of_a_busy_cluster_find_nothing_above_info(audits: Audits) -> None:
    assert len(audits.healthy) == 2
    assert_nothing_found(audits.healthy)


@pytest.mark.long
def test_ten_audits_of_a_busy_cluster_find_nothing_above_info(tmp_path: Path) -> None:
    hand_overs = {3: STAGES[0], 6: STAGES[1]}

    async def ten() -> list[Summary]:
        async with busy_cluster(tmp_path) as busy:
            return await audits_under_load(LocalRun(), busy, 10, hand_overs)

    assert_nothing_found(asyncio.run(ten()))


def comparable(expected: Expected) -> Expected:
    return replace(expected, affected=None) if expected.check in COUNTED_BY_TIME else expected


def above_info(summary: Summary) -> list[dict[str, object]]:
    return [
        {**one, "affected": None if one["check"] in COUNTED_BY_TIME else one["affected"]}
        for one in summary.findings
        if one["severity"] != "INFO"
    ]


@pytest.mark.parametrize("damage", EXPECTED)
def test_a_damage_is_found(audits: Audits, damage: str) -> None:
    broker, expected = EXPECTED[damage]
    found = [one for one in above_info(audits.damaged) if one["check"] == expected.check]
    assert told(found) == Counter([wanted(broker, comparable(expected))]), found
    assert expected.says in str(found[0]["evidence"])
    assert found[0]["command"]


def test_nothing_else_is_found(audits: Audits) -> None:
    expected = Counter(wanted(broker, comparable(one)) for broker, one in EXPECTED.values())
    assert told(above_info(audits.damaged)) == expected
