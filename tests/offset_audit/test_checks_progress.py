"""Checks of what stands now: lag, slow, stuck, stopped, out of range, orphans, never committed.

Each case is a group of its own in one set of tables, so that all of them cost one run of Spark.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.offset_audit.progress_runs import ProgressRun, shown
from tests.offset_audit.table_builders import BROKER, NOW_MS, TableRows

pytestmark = pytest.mark.slow

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


@pytest.fixture(scope="module")
def run(spark: SparkSession) -> ProgressRun:
    cases = Cases()
    for name in ("broker-a", "broker-b"):
        cases.add("brokers", broker_name=name)
    for tell in (lags, speeds, stuck, stopped, ranges, orphans, uncommitted, others):
        tell(cases)
    return ProgressRun(spark, cases)


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


def test_a_group_that_is_far_behind_is_found_with_the_number_of_unread_messages(
    run: ProgressRun,
) -> None:
    found = run.only("lag-many")
    assert (found.check, found.severity, found.affected) == ("LAG", "WARNING", 19_900)
    assert (found.broker_name, found.topic, found.queue_id) == ("broker-a", "t-lag-many", 0)
    assert found.evidence == (
        "Group lag-many has 19,900 messages of topic t-lag-many unread on queue broker-a:0; the "
        "oldest has waited for 30 s."
    )
    assert found.command == "aerobee group show lag-many"
    assert run.state("lag-many").state == "LAGGING"


def test_a_group_a_little_behind_is_well(run: ProgressRun) -> None:
    for name in ("lag-few", "lag-none", "lag-of-unknown-age"):
        assert run.checks(name) == []
        assert run.state(name).state == "OK"


def test_an_old_message_is_lag_however_few_there_are(run: ProgressRun) -> None:
    found = run.only("lag-old")
    assert (found.check, found.affected) == ("LAG", 5)
    assert "the oldest has waited for 14 min" in found.evidence


def test_with_a_tag_filter_only_matching_messages_count_and_the_evidence_says_both(
    run: ProgressRun,
) -> None:
    found = run.only("lag-matching")
    assert (found.check, found.affected) == ("LAG", 12_000)
    assert "has 12,000 messages" in found.evidence
    assert "among 19,900" in found.evidence
    assert "how long they have waited is not known" in found.evidence
    assert (run.state("lag-matching").lag, run.state("lag-matching").matching_lag) == (
        19_900,
        12_000,
    )
    assert run.checks("lag-few-matching") == run.checks("lag-none-matching") == []


def test_the_queues_of_one_topic_make_one_finding_that_names_the_worst(run: ProgressRun) -> None:
    found = run.only("lag-wide")
    assert found.affected == 19_900 + 14_900 + 19_100
    assert (found.broker_name, found.queue_id) == (None, None)
    assert "on 3 queues (most: 19,900 on broker-a:0)" in found.evidence


def test_without_an_end_the_lag_is_unknown_and_not_zero(run: ProgressRun) -> None:
    state = run.state("lag-of-unknown-end")
    assert (state.lag, state.state) == (None, "UNKNOWN")
    assert run.checks("lag-of-unknown-end") == []


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


def test_a_group_that_works_but_falls_behind_from_run_to_run_is_slow(run: ProgressRun) -> None:
    found = run.only("slow")
    assert (found.check, found.severity, found.affected) == ("SLOW", "WARNING", 5_000)
    assert found.evidence == (
        "Group slow consumes 1.2 messages/s of topic t-slow and falls behind by 16.7 messages/s: "
        "from 1,000 to 5,000 messages unread in 4 min, more in each of 5 runs, on queue broker-a:0."
    )


def test_a_lag_that_fell_once_is_low_or_rose_only_for_moments_is_not_slow(run: ProgressRun) -> None:
    for name in ("slow-but-caught-up", "slow-but-low", "slow-for-moments", "slow-to-an-unknown"):
        assert run.checks(name) == []


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


def test_a_member_that_commits_nothing_is_told_with_how_long(run: ProgressRun) -> None:
    found = run.only("stuck-silent")
    assert (found.check, found.severity, found.affected) == ("STUCK", "WARNING", 10)
    assert found.evidence == (
        "Group stuck-silent has not moved for 4 min on queue broker-a:0 of topic t-stuck-silent "
        "though 10 messages wait: its holder m is a member but commits nothing."
    )
    state = run.state("stuck-silent")
    assert (state.state, state.holder, state.members) == ("STUCK", "m", 1)
    assert state.since_ms == NOW_MS - 4 * MINUTE


def test_stuck_is_split_by_its_cause(run: ProgressRun) -> None:
    assert "nobody holds it, though 1 member subscribes" in run.only("stuck-not-held").evidence
    assert (
        "its holder m has lease 1, older than what counts since a commit under lease 7"
        in run.only("stuck-refused").evidence
    )
    poison = run.only("stuck-poison")
    assert poison.queue_id == 0
    assert "has committed on other queues 2 s before" in poison.evidence
    assert "the message at offset 90 holds it up" in poison.evidence


def test_one_silent_member_is_one_cause_whatever_it_holds(run: ProgressRun) -> None:
    found = run.only("stuck-twice")
    assert (found.affected, found.topic, found.queue_id) == (40, None, None)
    assert "on 3 queues (worst: broker-a:0) of 2 topics" in found.evidence


def test_without_times_earlier_runs_or_the_newest_message_tell_how_long(run: ProgressRun) -> None:
    assert run.checks("stuck-unknown") == []
    by_runs = run.only("stuck-by-runs")
    assert "has not moved for 3 min" in by_runs.evidence
    assert "has not moved for 3 min" in run.only("stuck-by-newest").evidence


def test_a_group_that_was_idle_or_slow_for_moments_is_not_stuck(run: ProgressRun) -> None:
    for name in ("stuck-after-idleness", "stuck-for-moments"):
        assert run.checks(name) == []
        assert run.state(name).state == "OK"


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


def test_a_group_without_members_is_stopped_after_a_while(run: ProgressRun) -> None:
    found = run.only("stopped")
    assert (found.check, found.severity, found.affected) == ("STOPPED", "WARNING", 7)
    assert found.evidence == (
        "Group stopped has no members, and 7 messages wait in topic t-stopped on queue "
        "broker-a:0; nothing was committed for 10 min."
    )
    assert (run.state("stopped").state, run.state("stopped").members) == ("STOPPED", 0)
    assert run.checks("stopped-just-now") == []


def test_a_stopped_group_is_one_finding_with_its_retry_topic(run: ProgressRun) -> None:
    found = run.only("stopped-wholly")
    assert (found.affected, found.topic) == (8, None)
    assert "in 2 topics" in found.evidence


def test_members_that_subscribe_to_something_else_do_not_count(run: ProgressRun) -> None:
    found = run.only("stopped-one-topic")
    assert "1 member, of which none subscribes to topic t-stopped-one-topic" in found.evidence


def test_a_broadcasting_group_is_not_judged(run: ProgressRun) -> None:
    assert run.checks("broadcasting") == []
    assert run.state("broadcasting").state == "UNKNOWN"


def ranges(cases: Cases) -> None:
    def at(name: str, offset: int, **values: Any) -> None:
        cases.queue(name, min_offset=50)
        known = {"committed_at_ms": NOW_MS - HOUR, "first_unread_ms": None, **values}
        cases.commit(name, offset, **known)

    at("low", 10)
    at("low-at-the-edge", 50)
    at("low-in-passing", 10, committed_at_ms=NOW_MS - 2 * SECOND)
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


def test_offsets_that_cannot_be_summed_up_are_told_without_a_number(run: ProgressRun) -> None:
    high = run.only("edited-high")
    assert (high.check, high.affected) == ("OUT_OF_RANGE_HIGH", None)
    assert "is ? beyond the end" in high.evidence
    low = [row for row in run.of("edited-low") if row.check == "OUT_OF_RANGE_LOW"]
    assert [row.affected for row in low] == [None]


def test_messages_that_were_removed_unread_are_counted_exactly(run: ProgressRun) -> None:
    found = run.only("low")
    assert (found.check, found.severity, found.affected) == ("OUT_OF_RANGE_LOW", "CRITICAL", 40)
    assert found.evidence == (
        "40 messages of topic t-low were removed before group low read them, on queue broker-a:0: "
        "offset 10, first message 50; the group has no members."
    )
    assert found.command == (
        "aerobee offset reset low t-low --queue broker-a:0 --to-offset 50 --dry-run"
    )
    assert run.only("low-in-log-too").affected == 20


def test_a_queue_that_lost_only_its_file_lost_no_message(run: ProgressRun) -> None:
    for name in ("low-in-queue-only", "high-in-queue-only"):
        assert run.checks(name) == []


def test_a_group_that_committed_during_the_reading_is_not_out_of_range(run: ProgressRun) -> None:
    assert run.checks("low-in-passing") == []


def test_an_offset_behind_the_end_is_found_and_at_an_edge_it_is_not(run: ProgressRun) -> None:
    found = run.only("high")
    assert (found.check, found.severity, found.affected) == ("OUT_OF_RANGE_HIGH", "ERROR", 20)
    assert "offset 120, end 100; as many new ones would be passed over." in found.evidence
    assert (run.state("high").lag, run.state("high").state) == (-20, "UNKNOWN")
    assert "OUT_OF_RANGE_HIGH" not in run.checks("high-at-the-end")
    assert "OUT_OF_RANGE_LOW" not in run.checks("low-at-the-edge")


def test_a_lag_below_zero_from_the_order_of_reading_is_a_fault_of_sampling(
    run: ProgressRun,
) -> None:
    found = run.only("high-by-reading")
    assert (found.check, found.severity) == ("SAMPLING", "INFO")
    assert "offset 120 was read 40 ms after the end 100" in found.evidence
    assert run.state("high-by-reading").lag == -20


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


def test_the_queues_of_a_deleted_topic_are_only_orphans(run: ProgressRun) -> None:
    assert run.checks("gone-behind") == run.checks("gone-ahead") == ["ORPHAN"]
    assert run.state("gone-behind").state == "UNKNOWN"
    assert run.checks("gone-waiting") == []


def test_offsets_of_a_deleted_topic_and_of_a_queue_that_is_gone_are_orphans(
    run: ProgressRun,
) -> None:
    topic = run.only("orphan-topic")
    assert (topic.check, topic.severity, topic.affected) == ("ORPHAN", "WARNING", 2)
    assert topic.evidence == (
        "Group orphan-topic has 2 offsets of topic t-orphan-topic, which does not exist any more "
        "on broker-a; a new topic of that name would be read from there."
    )
    queue = run.only("orphan-queue")
    assert (queue.check, queue.queue_id, queue.affected) == ("ORPHAN", 2, 1)
    assert "but the topic has 2 queues there" in queue.evidence


def test_a_lease_of_somebody_who_is_no_member_is_an_orphan(run: ProgressRun) -> None:
    found = run.only("orphan-lease")
    assert (found.check, found.affected) == ("ORPHAN", 1)
    assert "to gone, which is none of its 1 member there" in found.evidence


def test_empty_queues_queues_with_messages_and_light_queues_are_no_orphans(
    run: ProgressRun,
) -> None:
    for name in ("shrunk-topic", "empty-queue", "light"):
        assert run.checks(name) == []


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


def test_a_subscribed_group_that_never_committed_on_a_queue_is_found(run: ProgressRun) -> None:
    found = run.only("uncommitted")
    assert (found.check, found.severity, found.affected) == ("UNCOMMITTED_QUEUE", "WARNING", 80)
    assert found.queue_id == 1
    assert found.evidence == (
        "Group uncommitted has 1 member for topic t-uncommitted but has never committed on queue "
        "broker-a:1, where 80 messages have waited for at least 10 min; m holds it."
    )
    state = run.state("uncommitted", 1)
    assert (state.committed_offset, state.lag, state.state) == (None, None, "UNKNOWN")


def test_queues_that_members_may_not_read_any_more_are_not_theirs(run: ProgressRun) -> None:
    assert run.checks("uncommitted-shrunk") == []


def test_a_queue_where_messages_come_all_the_time_is_judged_by_earlier_runs(
    run: ProgressRun,
) -> None:
    assert run.checks("uncommitted-busy") == []
    assert "for at least 6 min" in run.only("uncommitted-busy-for-long").evidence


def test_newcomers_and_groups_without_subscribers_owe_no_commit(run: ProgressRun) -> None:
    for name in ("uncommitted-newcomer", "unsubscribed"):
        assert run.checks(name) == []


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


def test_the_system_s_own_groups_are_not_judged(run: ProgressRun) -> None:
    for group in ("CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER"):
        assert run.checks(group) == []
        assert group not in {row.group for row in run.states}


def test_without_a_master_the_furthest_slave_is_asked_and_the_finding_says_so(
    run: ProgressRun,
) -> None:
    found = run.only("of-slave")
    assert (found.check, found.affected) == ("LAG", 49_980)
    assert (found.broker_id, found.role) == (2, "SLAVE")
    assert found.evidence.endswith(", as a slave saw it.")
    assert run.state("of-slave").members is None


def test_a_store_at_rest_is_judged_as_of_its_newest_message_and_nobody_is_missed(
    run: ProgressRun,
) -> None:
    assert run.checks("at-rest") == []
    state = run.state("at-rest")
    assert (state.state, state.members, state.lag) == ("OK", None, 7)


def test_of_two_masters_the_one_of_the_newer_epoch_counts(run: ProgressRun) -> None:
    assert run.state("of-two-masters").committed_offset == 95


@pytest.mark.parametrize(
    "name",
    [
        "lag-many",
        "lag-matching",
        "slow",
        "stuck-silent",
        "stopped",
        "low",
        "high",
        "orphan-topic",
        "uncommitted",
        "high-by-reading",
    ],
)
def test_the_docs_show_what_is_printed(run: ProgressRun, name: str) -> None:
    assert shown(run.only(name)), run.only(name).evidence
