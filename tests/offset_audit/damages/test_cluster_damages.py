"""Eleven damages to a running cluster, by clients and by fate: these findings, and no others."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.request import AuditRequest
from tests.offset_audit.damages.auditing import audit
from tests.offset_audit.damages.damage import Expected, told, wanted
from tests.offset_audit.damages.live_cluster import (
    FAST,
    GAPPED,
    OLD,
    A,
    B,
    LiveCluster,
    live_cluster,
)
from tests.support.retention import RESERVED_MS, write_times

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

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
"""What a slow consumer takes for a message; it cannot come to the end while the test lasts."""
EXPECTED: dict[str, tuple[str | None, Expected]] = {
    "stopped group": (A, Expected("STOPPED", "WARNING", "events", 0, "ghost", 40, "no members")),
    "skipped by a reset": (A, Expected("SKIPPED", "WARNING", "events", 0, "skipper", 40, "reset")),
    "stuck member": (A, Expected("STUCK", "WARNING", "events", 0, "stuck", 50, "commits nothing")),
    "lagging group": (A, Expected("LAG", "WARNING", "backlog", 0, "laggard", None, "unread")),
    "slow group": (A, Expected("SLOW", "WARNING", "bulk", 0, "slow", None, "falls behind")),
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


TOPICS = {"events": 1, "bulk": 1, "backlog": 1, "old": 1, "parts": 2, "doomed": 1, "quiet": 1}


async def begin(cluster: LiveCluster) -> None:
    """Messages, and groups that consume and commit."""
    for topic, each in TOPICS.items():
        await cluster.create_topic(topic, each)
    await cluster.topics_are_there(*TOPICS)
    await cluster.send("events", 50)
    await cluster.send("quiet", 5, broker=FAST)
    await cluster.send("backlog", BULK)
    await cluster.send("bulk", BULK)
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
    cluster.consume("slow", "bulk", PAUSE_S)
    await cluster.committed("laggard", "backlog", 5)
    await cluster.committed("slow", "bulk", 5)


async def damage(cluster: LiveCluster) -> None:
    """What operators and fate do."""
    await cluster.reset("skipper", "events", 50)
    await remove_unread(cluster)
    await cluster.delete_topic("doomed")  # takes its offsets along: no damage
    await cluster.add_second_master()
    await cluster.add_gapped_broker()
    cluster.freeze(B)


async def remove_unread(cluster: LiveCluster) -> None:
    """Old segments go though a group has read five messages only."""
    await cluster.send("old", 40, broker=OLD, body=b"x" * 500)
    await cluster.commit("sleeper", "old", 5, broker=OLD)
    await cluster.send("old", 10, broker=OLD, body=b"x" * 500)
    await asyncio.sleep(0.5)
    write_times(cluster.folder / OLD, int(time.time() * 1_000) - RESERVED_MS - 1_000)
    assert await cluster.clean(OLD)


@pytest.fixture(scope="module")
def summary(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return asyncio.run(audit_live(spark, tmp_path_factory.mktemp("live")))


async def audit_live(spark: SparkSession, folder: Path) -> Summary:
    """The second of two audits; who falls behind is seen by comparing it with the first."""
    async with live_cluster(folder) as cluster:
        request = AuditRequest(
            nameservers=cluster.nameserver,
            history=str(folder / "history"),
            limits=LIMITS,
            source_options={"timeoutMs": "3000"},
        )
        await begin(cluster)
        begun_s = time.monotonic()
        await asyncio.to_thread(audit, spark, request)
        await cluster.send("bulk", BULK)
        await damage(cluster)
        await asyncio.sleep(max(0.0, begun_s + WAITED_MS / 1_000 + 1 - time.monotonic()))
        return await asyncio.to_thread(audit, spark, request)


def comparable(expected: Expected) -> Expected:
    return replace(expected, affected=None) if expected.check in COUNTED_BY_TIME else expected


def above_info(summary: Summary) -> list[dict[str, object]]:
    return [
        {**one, "affected": None if one["check"] in COUNTED_BY_TIME else one["affected"]}
        for one in summary.findings
        if one["severity"] != "INFO"
    ]


@pytest.mark.parametrize("damage", EXPECTED)
def test_a_damage_is_found(summary: Summary, damage: str) -> None:
    broker, expected = EXPECTED[damage]
    found = [one for one in above_info(summary) if one["check"] == expected.check]
    assert told(found) == Counter([wanted(broker, comparable(expected))]), found
    assert expected.says in str(found[0]["evidence"])
    assert found[0]["command"]


def test_nothing_else_is_found(summary: Summary) -> None:
    expected = Counter(wanted(broker, comparable(one)) for broker, one in EXPECTED.values())
    assert told(above_info(summary)) == expected
