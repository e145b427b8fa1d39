"""Groups of every state that the checks of progress judge, each case a group of its own."""

from __future__ import annotations

from typing import Any

from tests.offset_audit.table_builders import BROKER, NOW_MS, TableRows

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


class Cases(TableRows):
    """Groups `NAME`, each with a topic `t-NAME` on `broker-a`."""

    def queue(self, name: str, queue_id: int = 0, **values: Any) -> None:
        origin = {"broker_name": values.get("broker_name", BROKER)}
        if not any(
            row["topic"] == f"t-{name}" and row["broker_name"] == origin["broker_name"]
            for row in self.rows("topics")
        ):
            self.add("topics", topic=f"t-{name}", read_queue_count=2, write_queue_count=2, **origin)
        self.add("queues", topic=f"t-{name}", queue_id=queue_id, **values)

    def commit(self, name: str, offset: int, queue_id: int = 0, **values: Any) -> None:
        known = {"topic": f"t-{name}", **values}
        self.add("commits", group=name, offset=offset, queue_id=queue_id, **known)

    def lease(self, name: str, client_id: str, queue_id: int = 0, **values: Any) -> None:
        known = {"topic": f"t-{name}", **values}
        self.add("leases", group=name, client_id=client_id, queue_id=queue_id, **known)

    def join(self, name: str, client_id: str = "m", **values: Any) -> None:
        self.member(name, client_id, f"t-{name}", **values)

    def earlier(self, name: str, age_ms: int, offset: int | None, **values: Any) -> None:
        known = {"topic": f"t-{name}", **values}
        self.add("history", group=name, run_at_ms=NOW_MS - age_ms, committed_offset=offset, **known)

    def at_work(self, name: str, max_offset: int, offset: int, **values: Any) -> None:
        """A group with one member that has just committed on its one queue."""
        self.queue(name, max_offset=max_offset, last_store_ms=NOW_MS - SECOND)
        self.commit(name, offset, client_id="m", **values)
        self.join(name)
        self.lease(name, "m")


def lags(cases: Cases) -> None:
    cases.at_work("lag-many", 20_000, 100, first_unread_ms=NOW_MS - 30 * SECOND)
    cases.at_work("lag-few", 5_100, 100, first_unread_ms=NOW_MS - 30 * SECOND)
    cases.at_work("lag-none", 100, 100)
    cases.at_work("lag-old", 105, 100, first_unread_ms=NOW_MS - 14 * MINUTE)
    cases.at_work("lag-of-unknown-age", 105, 100)
    cases.at_work("lag-matching", 20_000, 100, matching_unread=12_000)
    cases.at_work("lag-few-matching", 20_000, 100, matching_unread=12)
    cases.at_work(
        "lag-none-matching", 20_000, 100, matching_unread=0, committed_at_ms=NOW_MS - HOUR
    )
    for broker, queue_id, offset in (
        ("broker-a", 0, 100),
        ("broker-a", 1, 5_100),
        ("broker-b", 0, 900),
    ):
        cases.queue("lag-wide", queue_id, max_offset=20_000, broker_name=broker)
        cases.commit("lag-wide", offset, queue_id, broker_name=broker)
    cases.commit("lag-of-unknown-end", 5)
    cases.add("topics", topic="t-lag-of-unknown-end")


def speeds(cases: Cases) -> None:
    def runs(name: str, *lag: int, step_ms: int = MINUTE, **values: Any) -> None:
        for index, unread in enumerate(reversed(lag)):
            age_ms = (index + 1) * step_ms
            cases.earlier(name, age_ms, 1_000 - index * 60, lag=unread, **values)

    cases.at_work("slow", 6_100, 1_100)
    runs("slow", 1_000, 2_000, 3_000, 4_000)
    cases.at_work("slow-but-caught-up", 6_100, 1_100)
    runs("slow-but-caught-up", 2_000, 6_000, 3_000, 4_000)
    cases.at_work("slow-but-low", 1_200, 1_100)
    runs("slow-but-low", 40, 60, 80, 90)
    cases.at_work("slow-for-moments", 6_100, 1_100)
    runs("slow-for-moments", 3_000, 4_000)
    cases.at_work("slow-to-an-unknown", 6_100, 1_100)
    runs("slow-to-an-unknown", 1_000, 2_000, 3_000, 4_000)
    cases.earlier("slow-to-an-unknown", 90 * SECOND, 1_000)


def stuck(cases: Cases) -> None:
    def waiting(name: str, queue_id: int = 0, **values: Any) -> None:
        known = {
            "committed_at_ms": NOW_MS - 5 * MINUTE,
            "first_unread_ms": NOW_MS - 4 * MINUTE,
            "client_id": "m",
            **values,
        }
        cases.queue(name, queue_id, last_store_ms=NOW_MS - 3 * MINUTE)
        cases.commit(name, 90, queue_id, **known)

    for name in (
        "stuck-silent",
        "stuck-after-idleness",
        "stuck-not-held",
        "stuck-refused",
        "stuck-poison",
        "stuck-unknown",
        "stuck-by-runs",
        "stuck-by-newest",
        "stuck-for-moments",
        "stuck-twice",
    ):
        cases.join(name)
        if name != "stuck-not-held":
            cases.lease(name, "m")
    waiting("stuck-silent")
    waiting("stuck-after-idleness", committed_at_ms=NOW_MS - HOUR, first_unread_ms=NOW_MS - 20_000)
    waiting("stuck-not-held")
    waiting("stuck-refused", lease_epoch=7)
    waiting("stuck-poison")
    waiting("stuck-poison", 1, committed_at_ms=NOW_MS - 2 * SECOND)
    waiting("stuck-unknown", committed_at_ms=None)
    waiting("stuck-by-runs", committed_at_ms=None, first_unread_ms=None)
    for minutes, offset in ((4, 80), (3, 90), (2, 90), (1, 90)):
        cases.earlier("stuck-by-runs", minutes * MINUTE, offset, lag=5)
    waiting("stuck-by-newest", first_unread_ms=None)
    waiting("stuck-for-moments", committed_at_ms=NOW_MS - 50 * SECOND)
    for queue_id in (0, 1):
        waiting("stuck-twice", queue_id)
    cases.add("queues", topic="t-other")
    cases.add("topics", topic="t-other")
    cases.commit(
        "stuck-twice",
        80,
        topic="t-other",
        committed_at_ms=NOW_MS - 9 * MINUTE,
        first_unread_ms=NOW_MS - 9 * MINUTE,
    )
    cases.member("stuck-twice", "m2", "t-other")
    cases.lease("stuck-twice", "m", 1)
    cases.lease("stuck-twice", "m", topic="t-other")


def stopped(cases: Cases) -> None:
    def left(name: str, minutes: int, **values: Any) -> None:
        cases.queue(name)
        known = {
            "committed_at_ms": NOW_MS - minutes * MINUTE,
            "first_unread_ms": NOW_MS - minutes * MINUTE,
            **values,
        }
        cases.commit(name, 93, **known)

    left("stopped", 10)
    left("stopped-just-now", 4)
    left("stopped-one-topic", 10)
    cases.member("stopped-one-topic", "m", "t-quiet")
    left("stopped-wholly", 10)
    cases.add("topics", topic="%RETRY%stopped-wholly")
    cases.add("queues", topic="%RETRY%stopped-wholly")
    cases.commit(
        "stopped-wholly",
        99,
        topic="%RETRY%stopped-wholly",
        committed_at_ms=NOW_MS - HOUR,
        first_unread_ms=NOW_MS - HOUR,
    )
    left("broadcasting", 10)
    cases.join("broadcasting", broadcasting=True)
    left("retrying", 10)
    cases.join("retrying")


def ranges(cases: Cases) -> None:
    def at(name: str, offset: int, **values: Any) -> None:
        cases.queue(name, min_offset=50)
        known = {"committed_at_ms": NOW_MS - HOUR, "first_unread_ms": None, **values}
        cases.commit(name, offset, **known)

    at("low", 10)
    at("low-at-the-edge", 50)
    at("low-in-passing", 10, committed_at_ms=NOW_MS - 2 * SECOND)
    at("low-by-slow-committer", 10)
    cases.add(
        "journal",
        group="low-by-slow-committer",
        topic="t-low-by-slow-committer",
        journal_offset=1,
        offset=60,
        timestamp_ms=NOW_MS + 20,
    )
    at("low-in-queue-only", 10)
    cases.add("queue_ranges", topic="t-low-in-queue-only", first_offset=0, last_offset=99)
    at("low-in-log-too", 10)
    cases.add("queue_ranges", topic="t-low-in-log-too", first_offset=30, last_offset=99)
    at("high", 120)
    at("high-at-the-end", 100)
    at("high-in-queue-only", 120)
    cases.add("queue_ranges", topic="t-high-in-queue-only", first_offset=50, last_offset=119)
    at("high-by-reading", 120, read_at_ms=NOW_MS + 40)
    most = (1 << 63) - 1
    for queue_id in (0, 1):
        for name, offset in (("edited-high", most), ("edited-low", -most)):
            cases.queue(name, queue_id, min_offset=50)
            cases.commit(name, offset, queue_id, committed_at_ms=-most, first_unread_ms=-most)


def orphans(cases: Cases) -> None:
    cases.commit("orphan-topic", 5)
    cases.commit("orphan-topic", 6, 1)
    cases.queue("orphan-queue")
    cases.commit("orphan-queue", 100)
    cases.commit("orphan-queue", 5, 2)
    cases.queue("shrunk-topic", 2)
    cases.commit("shrunk-topic", 100, 2)
    cases.queue("empty-queue")
    cases.commit("empty-queue", 0, 1)
    cases.add("commits", group="light", topic="%LMQ%light", offset=3)
    for name in ("gone-behind", "gone-ahead", "gone-waiting"):
        first = 0 if name == "gone-waiting" else 100
        cases.add("queues", topic=f"t-{name}", min_offset=first, last_store_ms=NOW_MS - HOUR)
        cases.join(name)
    cases.commit("gone-behind", 5, committed_at_ms=NOW_MS - HOUR, first_unread_ms=NOW_MS - HOUR)
    cases.commit("gone-ahead", 300, committed_at_ms=NOW_MS - HOUR)
    cases.earlier("gone-waiting", HOUR, None)
    cases.queue("orphan-lease")
    cases.commit("orphan-lease", 100)
    cases.join("orphan-lease", "m")
    cases.lease("orphan-lease", "gone")


def uncommitted(cases: Cases) -> None:
    def two(name: str, sibling_age_ms: int | None, last_store_ms: int) -> None:
        cases.queue(name)
        cases.queue(name, 1, last_store_ms=last_store_ms, min_offset=20)
        cases.join(name)
        for queue_id in (0, 1):
            cases.lease(name, "m", queue_id)
        if sibling_age_ms is not None:
            cases.commit(name, 100, committed_at_ms=NOW_MS - sibling_age_ms, client_id="m")

    two("uncommitted", MINUTE, NOW_MS - 10 * MINUTE)
    two("uncommitted-newcomer", 2 * SECOND, NOW_MS - 10 * MINUTE)
    two("uncommitted-busy", MINUTE, NOW_MS - SECOND)
    two("uncommitted-busy-for-long", MINUTE, NOW_MS - SECOND)
    for minutes in (6, 3):
        cases.earlier("uncommitted-busy-for-long", minutes * MINUTE, None, queue_id=1)
    two("uncommitted-shrunk", MINUTE, NOW_MS - 10 * MINUTE)
    for row in cases.rows("topics"):
        if row["topic"] == "t-uncommitted-shrunk":
            row["read_queue_count"] = 1
    cases.queue("unsubscribed", 0)
    cases.queue("unsubscribed", 1, last_store_ms=NOW_MS - HOUR)
    cases.commit("unsubscribed", 100, committed_at_ms=NOW_MS - HOUR)


def others(cases: Cases) -> None:
    """What is not an application's, and what a slave or files at rest say."""
    for group, topic in (
        ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"),
        ("TOOLS_CONSUMER", "t-lag-many"),
    ):
        cases.add("commits", group=group, topic=topic, offset=0, committed_at_ms=NOW_MS - HOUR)
    cases.add("queues", topic="RMQ_SYS_TRANS_HALF_TOPIC", max_offset=90_000)
    cases.add("brokers", broker_name="broker-s", answered=False, role=None, epoch=None)
    for broker_id, offset in ((1, 10), (2, 20)):
        origin: dict[str, Any] = {"broker_name": "broker-s", "broker_id": broker_id}
        cases.add("brokers", role="SLAVE", dispatched_end=broker_id, **origin)
        cases.queue("of-slave", max_offset=50_000, **origin)
        cases.commit("of-slave", offset, committed_at_ms=NOW_MS - HOUR, **origin)
    at_rest = {"broker_name": "store", "cluster": ""}
    cases.add("brokers", role="STORE", epoch=None, commits_read_at_ms=None, **at_rest)
    cases.add("queues", topic="t", last_store_ms=NOW_MS - 24 * HOUR, read_at_ms=None, **at_rest)
    cases.add(
        "commits",
        group="at-rest",
        offset=93,
        committed_at_ms=NOW_MS - 25 * HOUR,
        first_unread_ms=NOW_MS - 24 * HOUR - 5 * MINUTE,
        read_at_ms=None,
        **at_rest,
    )
    cases.at_work("of-two-masters", 100, 95)
    cases.add("brokers", epoch=0, broker_id=1)
    cases.commit("of-two-masters", 5, broker_id=1)
