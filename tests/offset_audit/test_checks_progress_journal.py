"""Checks of how offsets were moved: rewound, reset, skipped, by the journal or by earlier runs."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.offset_audit.frames.frame import Engine
from tests.offset_audit.progress_runs import ProgressRun, shown
from tests.offset_audit.table_builders import NOW_MS, TableRows

pytestmark = pytest.mark.slow

MINUTE = 60_000
HOUR = 60 * MINUTE
BEGIN_MS = NOW_MS - HOUR


class Histories(TableRows):
    """Groups with a queue of their own, on `broker-a` with a journal or on `broker-b` without."""

    def __init__(self) -> None:
        super().__init__()
        self._records = 0

    def stands(self, name: str, offset: int, *, max_offset: int = 200, **values: Any) -> None:
        origin = {key: values[key] for key in ("broker_name", "broker_id") if key in values}
        self.add("queues", topic=f"t-{name}", max_offset=max_offset, **origin)
        self.add("topics", topic=f"t-{name}", **origin)
        self.add("commits", group=name, topic=f"t-{name}", offset=offset, **values)

    def said(self, name: str, *changes: tuple[Any, ...], begin_ms: int = BEGIN_MS) -> None:
        """Journal entries a second apart: offset, then kind, lease and client where they matter."""
        known: tuple[Any, ...] = (None, "commit", 1, "m")
        for index, change in enumerate(changes):
            offset, kind, lease_epoch, client_id = (*change, *known[len(change) :])
            self._records += 1
            self.add(
                "journal",
                group=name,
                topic=f"t-{name}",
                journal_offset=self._records,
                offset=offset,
                kind=kind,
                lease_epoch=lease_epoch,
                client_id=client_id,
                timestamp_ms=begin_ms + index * 1_000,
                **({"broker_name": "store"} if name.startswith("store") else {}),
            )

    def removed(self, *, at_ms: int = BEGIN_MS + MINUTE, **selected: Any) -> None:
        """Offsets were deleted; what is not named is all."""
        self._records += 1
        named = {"group": None, "topic": None, "queue_id": None, **selected}
        self.add(
            "journal",
            journal_offset=self._records,
            kind="remove",
            timestamp_ms=at_ms,
            **{**named, "lease_epoch": None, "client_id": None},
        )

    def seen(self, name: str, minutes: int, offset: int, **values: Any) -> None:
        known = {"max_offset": 200, **values}
        self.add(
            "history",
            group=name,
            topic=f"t-{name}",
            run_at_ms=NOW_MS - minutes * MINUTE,
            committed_offset=offset,
            **known,
        )


@pytest.fixture(scope="module")
def run(engine: Engine) -> ProgressRun:
    rows = Histories()
    for name in ("broker-a", "broker-b"):
        rows.add("brokers", broker_name=name)
    rows.add("brokers", broker_name="store", role="STORE", epoch=None)
    rows.add("brokers", broker_name="broker-s", role="SLAVE")
    resets(rows)
    jumps(rows)
    falls(rows)
    without_journal(rows)
    beyond_the_window(rows)
    in_use(rows)
    deletions(rows)
    return ProgressRun(engine, rows)


def resets(rows: Histories) -> None:
    rows.said("back", (10, "commit", 20), (90, "commit", 20), (20, "reset", 20), (25, "commit", 21))
    rows.said("forward", (25, "commit", 22), (100, "reset", 22))
    rows.said(
        "healed", (25, "commit", 23), (100, "reset", 23), (25, "reset", 24), (100, "commit", 25)
    )
    rows.said(
        "partly", (20, "commit", 26), (100, "reset", 26), (50, "reset", 26), (80, "commit", 27)
    )
    rows.said("first", (100, "reset", 28))
    rows.said("in-place", (100, "commit", 29), (100, "reset", 29))
    rows.said("long-ago", (90, "commit", 30), (20, "reset", 30), begin_ms=NOW_MS - 25 * HOUR)
    rows.said("CID_RMQ_SYS_TRANS", (90, "commit", 31), (20, "reset", 31))


@pytest.mark.thorough
def test_a_reset_back_is_told_with_how_many_messages_come_again(run: ProgressRun) -> None:
    found = run.only("back")
    assert (found.check, found.severity, found.affected) == ("RESET", "WARNING", 70)
    assert found.evidence == (
        "At 2026-09-21 13:13:22 UTC an operator reset group back on topic t-back, queue "
        "broker-a:0, from offset 90 back to 20; 70 messages are delivered again."
    )


def test_a_reset_forward_skips_exactly_the_messages_that_were_never_consumed(
    run: ProgressRun,
) -> None:
    found = run.only("forward")
    assert (found.check, found.severity, found.affected) == ("SKIPPED", "WARNING", 75)
    assert found.evidence == (
        "Group forward never consumed 75 messages of topic t-forward on queue broker-a:0: an "
        "operator's reset moved it from offset 25 to 100 at 2026-09-21 13:13:21 UTC."
    )
    assert found.command == (
        "aerobee offset reset forward t-forward --queue broker-a:0 --to-offset 25 --dry-run"
    )


def test_what_was_consumed_after_a_reset_back_was_not_skipped(run: ProgressRun) -> None:
    assert run.checks("healed") == ["RESET"]
    assert run.checks("partly") == ["RESET", "SKIPPED"]
    assert [row.affected for row in run.of("partly")] == [50, 30 + 20]


def test_a_reset_that_passes_nothing_over_is_only_worth_knowing(run: ProgressRun) -> None:
    for name, words in (("first", "is not known"), ("in-place", ", which it already had.")):
        found = run.only(name)
        assert (found.check, found.severity, found.affected) == ("RESET", "INFO", 0)
        assert words in found.evidence


def test_old_resets_and_those_of_the_system_s_groups_are_not_told(run: ProgressRun) -> None:
    assert run.checks("long-ago") == run.checks("CID_RMQ_SYS_TRANS") == []


def jumps(rows: Histories) -> None:
    rows.said("free", (10, "commit", 40), (20, "commit", 40), (60, "commit", 0, "stranger"))
    rows.said("always-free", (10, "commit", 0), (60, "commit", 0), (90, "commit", 0))
    rows.said("foreign", (10, "commit", 41), (20, "commit", 42, "m"), (60, "commit", 42, "thief"))
    rows.said("fast", (10, "commit", 43), (50_000_000, "commit", 43))
    rows.said("quick", (10, "commit", 44), (900_000, "commit", 44))
    rows.said(
        "regular", (10, "commit", 45), (10, "image", 46), (60, "commit", 46), (80, "image", 47)
    )
    rows.said("waiting", (10, "commit", 48))
    committed: dict[str, Any] = {"committed_at_ms": BEGIN_MS, "broker_name": "store"}
    rows.said("store-edited", (80, "commit", 49))
    rows.stands("store-edited", 95, **committed)
    rows.said("store-behind", (60, "commit", 50), (80, "commit", 50))
    rows.stands("store-behind", 60, **committed)
    rows.said("store-cut", (80, "commit", 51))
    rows.stands("store-cut", 95, committed_at_ms=BEGIN_MS + HOUR, broker_name="store")


def test_a_commit_that_no_holder_made_skips_messages(run: ProgressRun) -> None:
    free = run.only("free")
    assert (free.check, free.severity, free.affected) == ("SKIPPED", "WARNING", 40)
    assert "a commit by stranger without a lease moved it from offset 20 to 60" in free.evidence
    foreign = run.of("foreign")[-1]
    assert (foreign.check, foreign.severity) == ("SKIPPED", "CRITICAL")
    assert (
        "under lease 42, which belongs to another client or queue, moved it from offset 20 to 60"
        in foreign.evidence
    )


def test_an_offset_that_moves_faster_than_messages_can_come_was_not_consumed(
    run: ProgressRun,
) -> None:
    found = run.only("fast")
    assert (found.check, found.severity, found.affected) == ("SKIPPED", "CRITICAL", 49_999_990)
    assert (
        "1 s after the previous one, faster than 1,000,000 messages/s, moved it" in found.evidence
    )
    assert run.checks("quick") == []


def test_consumers_without_leases_images_and_new_holders_are_regular(run: ProgressRun) -> None:
    for name in ("always-free", "regular", "waiting"):
        assert run.checks(name) == []


def test_an_edited_table_of_offsets_is_found_by_the_journal(run: ProgressRun) -> None:
    found = run.only("store-edited")
    assert (found.check, found.severity, found.affected) == ("SKIPPED", "CRITICAL", 15)
    assert "no entry of the journal moved it from offset 80 to 95" in found.evidence


def test_a_snapshot_older_than_the_journal_or_newer_than_its_lost_end_is_no_finding(
    run: ProgressRun,
) -> None:
    assert run.checks("store-behind") == run.checks("store-cut") == []
    assert run.state("store-behind").committed_offset == 80


def falls(rows: Histories) -> None:
    rows.said("fell-image", (100, "commit", 60), (40, "image", 60), (45, "commit", 61))
    rows.said("fell-commit", (100, "commit", 62), (40, "commit", 63), (120, "commit", 63))
    rows.said("below", (80, "commit", 64))
    rows.stands("below", 60, committed_at_ms=BEGIN_MS)
    rows.said("just-now", (60, "commit", 65), (80, "commit", 65), begin_ms=NOW_MS - 2_000)
    rows.stands("just-now", 60, committed_at_ms=NOW_MS - 2_000)
    rows.seen("between-runs", 10, 150)
    rows.seen("between-runs", 3, 90)
    rows.stands("between-runs", 50)
    rows.seen("reset-between-runs", 3, 90)
    rows.said("reset-between-runs", (90, "commit", 66), (20, "reset", 66), begin_ms=NOW_MS - MINUTE)
    rows.stands("reset-between-runs", 50, committed_at_ms=NOW_MS)
    rows.seen("begun-anew", 3, 150)
    rows.stands("begun-anew", 10, max_offset=50)


def test_an_offset_that_falls_in_the_journal_without_a_reset_was_rewound(run: ProgressRun) -> None:
    for name in ("fell-image", "fell-commit"):
        found = run.only(name)
        assert (found.check, found.severity, found.affected) == ("REWOUND", "ERROR", 60)
        assert (
            "from 100 (2026-09-21 13:13:20 UTC) to 40; its journal has no reset" in found.evidence
        )


def test_an_offset_below_what_the_journal_says_was_rewound(run: ProgressRun) -> None:
    found = run.only("below")
    assert (found.check, found.severity, found.affected) == ("REWOUND", "ERROR", 20)
    assert "its journal has the larger offset" in found.evidence
    assert found.command.endswith("--to-offset 80 --dry-run")
    assert run.checks("just-now") == []


def test_an_offset_below_that_of_the_last_run_was_rewound(run: ProgressRun) -> None:
    found = run.only("between-runs")
    assert (found.check, found.severity, found.affected) == ("REWOUND", "ERROR", 40)
    assert "its journal has no reset since the earlier run" in found.evidence


def test_a_reset_between_the_runs_is_told_as_one_and_a_new_queue_not_at_all(
    run: ProgressRun,
) -> None:
    assert run.checks("reset-between-runs") == ["RESET"]
    assert run.checks("begun-anew") == []


def without_journal(rows: Histories) -> None:
    at: dict[str, Any] = {"broker_name": "broker-b"}
    rows.seen("unproven", 3, 90, **at)
    rows.stands("unproven", 50, **at)
    for name, offset in (("told-back", 20), ("told-forward", 120)):
        rows.seen(name, 9, 80, **at)
        rows.seen(name, 5, 90, **at)
        rows.seen(name, 1, offset, **at)
        rows.stands(name, offset, is_reset=True, committed_at_ms=NOW_MS - 2 * MINUTE, **at)
    rows.stands("told-first", 20, is_reset=True, **at)
    of_slave: dict[str, Any] = {"broker_name": "broker-s"}
    rows.seen("on-slave", 3, 90, **of_slave)
    rows.stands("on-slave", 50, **of_slave)


def test_without_the_journal_a_fall_is_a_warning_that_says_what_is_not_known(
    run: ProgressRun,
) -> None:
    found = run.only("unproven")
    assert (found.check, found.severity) == ("REWOUND", "WARNING")
    assert "the journal was not read from there on, so a reset may be the cause" in found.evidence


def beyond_the_window(rows: Histories) -> None:
    rows.seen("weekly", 26 * 60, 90)
    rows.stands("weekly", 50)
    rows.seen("first-known", 70, 25)
    rows.said("first-known", (100, "reset", 70))
    rows.said("edited", (10, "commit", 71), ((1 << 63) - 1, "commit", 71), (-5, "reset", 72))


def test_a_fall_that_began_before_what_was_read_of_the_journal_is_a_warning(
    run: ProgressRun,
) -> None:
    found = run.only("weekly")
    assert (found.check, found.severity, found.affected) == ("REWOUND", "WARNING", 40)


def test_a_reset_that_begins_the_journal_is_judged_by_the_last_run_before_it(
    run: ProgressRun,
) -> None:
    found = run.only("first-known")
    assert (found.check, found.severity, found.affected) == ("SKIPPED", "WARNING", 75)
    assert "has not consumed up to 75 messages" in found.evidence


def test_a_journal_with_offsets_that_cannot_be_is_judged_all_the_same(run: ProgressRun) -> None:
    assert "SKIPPED" in run.checks("edited")


def in_use(rows: Histories) -> None:
    rows.add(
        "queues",
        broker_name="store",
        topic="AEROBEE_OFFSET_JOURNAL",
        max_offset=max(row["journal_offset"] for row in rows.rows("journal")) + 1,
        last_store_ms=1 << 62,
    )
    rows.stands("store-in-use", 150, committed_at_ms=BEGIN_MS - 1, broker_name="store")
    rows.said("store-in-use", (300, "commit", 80))


def test_what_a_store_s_journal_got_after_its_queues_were_read_does_not_count(
    run: ProgressRun,
) -> None:
    assert run.checks("store-in-use") == []
    assert run.state("store-in-use").committed_offset == 150


def test_a_store_time_that_has_not_come_is_not_the_moment_of_a_store(run: ProgressRun) -> None:
    assert run.state("store-in-use").since_ms == NOW_MS


def test_without_the_journal_a_reset_is_judged_by_the_last_run_before_it(run: ProgressRun) -> None:
    back = run.only("told-back")
    assert (back.check, back.severity, back.affected) == ("RESET", "WARNING", 70)
    forward = run.only("told-forward")
    assert (forward.check, forward.severity, forward.affected) == ("SKIPPED", "WARNING", 30)
    assert "has not consumed up to 30 messages" in forward.evidence
    assert run.only("told-first").severity == "INFO"


def test_a_slave_s_offsets_may_be_old_and_prove_no_fall(run: ProgressRun) -> None:
    assert run.checks("on-slave") == []


@pytest.mark.parametrize("name", ["back", "forward", "below"])
def test_the_docs_show_what_is_printed(run: ProgressRun, name: str) -> None:
    assert shown(run.only(name)), run.only(name).evidence


DELETIONS = {
    "deleted-group": ("group",),
    "deleted-topic": ("topic",),
    "deleted-offsets": ("group", "topic"),
    "deleted-queue": ("group", "topic", "queue_id"),
}


def deletions(rows: Histories) -> None:
    """Each group begins anew at 5 after its offset of 90 was deleted, by one way or another."""
    for number, (name, shape) in enumerate(DELETIONS.items()):
        rows.said(name, (90, "commit", 60 + number))
        rows.seen(name, 70, 90)
        selected: dict[str, Any] = {"group": name, "topic": f"t-{name}", "queue_id": 0}
        rows.removed(**{column: selected[column] for column in shape})
        rows.said(name, (5, "commit", 70 + number), begin_ms=BEGIN_MS + 2 * MINUTE)
        rows.stands(name, 5, committed_at_ms=BEGIN_MS + 2 * MINUTE)
    # Other groups' deletions excuse nobody.
    rows.said("not-deleted", (90, "commit", 80))
    rows.removed(group="not-deleted", topic="t-not-deleted", queue_id=1)
    rows.said("not-deleted", (5, "commit", 81), begin_ms=BEGIN_MS + 2 * MINUTE)


@pytest.mark.parametrize("name", DELETIONS)
def test_a_group_that_begins_anew_after_a_deletion_is_no_finding(
    run: ProgressRun, name: str
) -> None:
    assert {"RESET", "REWOUND", "SKIPPED"}.isdisjoint(run.checks(name))


def test_a_deletion_of_something_else_excuses_nothing(run: ProgressRun) -> None:
    assert "REWOUND" in run.checks("not-deleted")
