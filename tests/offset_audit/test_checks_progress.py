"""Checks of what stands now: lag, slow, stuck, stopped, out of range, orphans, never committed.

Each case is a group of its own in one set of tables, so that all of them cost one run of Spark.
"""

from __future__ import annotations

import pytest

from aerobee.offset_audit.checks.progress import CHECKS
from aerobee.offset_audit.doctor.examining import CHECKED, examined
from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.frame import Engine
from aerobee.offset_audit.rules.limits import Limits
from aerobee.offset_audit.tables import COLUMNS, FINDINGS
from tests.offset_audit.progress_cases import (
    MINUTE,
    Cases,
    lags,
    orphans,
    others,
    ranges,
    speeds,
    stopped,
    stuck,
    uncommitted,
)
from tests.offset_audit.progress_runs import ProgressRun, shown
from tests.offset_audit.table_builders import NOW_MS

pytestmark = pytest.mark.slow


BY_RUN = ("run_id", "run_at_ms", "previous_state", "first_seen_ms")


@pytest.fixture(scope="module")
def run(engine: Engine) -> ProgressRun:
    cases = Cases()
    for name in ("broker-a", "broker-b"):
        cases.add("brokers", broker_name=name)
    for tell in (lags, speeds, stuck, stopped, ranges, orphans, uncommitted, others):
        tell(cases)
    return ProgressRun(engine, cases)


def now_only() -> Cases:
    """All cases, without what earlier runs and journals tell."""
    cases = Cases()
    for name in ("broker-a", "broker-b"):
        cases.add("brokers", broker_name=name)
    for tell in (lags, speeds, stuck, stopped, ranges, orphans, uncommitted, others):
        tell(cases)
    for table in ("history", "journal", "queue_ranges"):
        cases.forget(table)
    return cases


def test_the_doctor_says_what_an_audit_says_of_one_reading(engine: Engine) -> None:
    cases = now_only()
    # What a run adds is not told by checks.
    told = [name for name in names_of(FINDINGS) if name not in BY_RUN]
    names = {check.name for check in CHECKS if check.name in CHECKED}
    by_audit = {
        tuple(row[name] for name in told)
        for row in ProgressRun(engine, cases).findings
        if row.check in names
    }
    tables = {name: cases.rows(name) for name in COLUMNS}
    by_doctor = {
        tuple(each[name] for name in told)
        for each in examined(tables, Limits(now_ms=NOW_MS))
        if each["check"] in names
    }
    assert by_doctor == by_audit
    assert {each[told.index("check")] for each in by_doctor} == names


@pytest.mark.thorough
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
    assert "only those of 19,900" in found.evidence
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
    assert "it has no holder, though 1 member subscribes" in run.only("stuck-not-held").evidence
    assert (
        "its holder m has lease 1, which is not valid since a commit under lease 7"
        in run.only("stuck-refused").evidence
    )
    poison = run.only("stuck-poison")
    assert poison.queue_id == 0
    assert "committed on other queues 2 s ago" in poison.evidence
    assert "the message at offset 90 blocks it" in poison.evidence


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


def test_offsets_that_cannot_be_summed_up_are_told_without_a_number(run: ProgressRun) -> None:
    high = run.only("edited-high")
    assert (high.check, high.affected) == ("OUT_OF_RANGE_HIGH", None)
    assert "is ? past the end" in high.evidence
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


def test_a_slow_committer_that_went_on_during_the_reading_is_not_out_of_range(
    run: ProgressRun,
) -> None:
    """Its last commit is old, the next one came after offsets were copied and before ends were."""
    assert "OUT_OF_RANGE_LOW" not in run.checks("low-by-slow-committer")


def test_an_offset_past_the_end_is_found_and_at_an_edge_it_is_not(run: ProgressRun) -> None:
    found = run.only("high")
    assert (found.check, found.severity, found.affected) == ("OUT_OF_RANGE_HIGH", "ERROR", 20)
    assert "offset 120, end 100; as many new messages would be skipped." in found.evidence
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
        "Group orphan-topic has 2 offsets of topic t-orphan-topic, which no longer exists on "
        "broker-a; a new topic of that name would be read from these offsets."
    )
    queue = run.only("orphan-queue")
    assert (queue.check, queue.queue_id, queue.affected) == ("ORPHAN", 2, 1)
    assert "but the topic has 2 queues there" in queue.evidence


def test_a_lease_of_somebody_who_is_no_member_is_an_orphan(run: ProgressRun) -> None:
    found = run.only("orphan-lease")
    assert (found.check, found.affected) == ("ORPHAN", 1)
    assert "to gone, which is not one of its 1 member there" in found.evidence


def test_empty_queues_queues_with_messages_and_light_queues_are_no_orphans(
    run: ProgressRun,
) -> None:
    for name in ("shrunk-topic", "empty-queue", "light"):
        assert run.checks(name) == []


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
