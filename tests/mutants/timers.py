"""Errors in messages that arrive at a time."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_TESTS = "tests/broker/timers"

TIMERS: Final = (
    Mutant(
        name="woken-during-work-forgotten",
        breaks="a message that is due at once waits for the next one, because another was just "
        "being delivered",
        at="worker.py::Worker.run",
        old="if wait_s != 0:",
        new="self._woken.clear()\nif wait_s != 0:",
        tests=("tests/runtime/test_worker.py::test_a_waking_during_the_work_is_not_lost",),
    ),
    Mutant(
        name="trouble-told-each-time",
        breaks="a full disk fills the log with the same line, four times a second",
        at="worker.py::Worker._note",
        old="self._times == self._tells_at",
        new="self._times >= self._tells_at",
        tests=("tests/runtime/test_worker.py::test_each_trouble_is_told_once_until_it_is_over",),
    ),
    Mutant(
        name="acts-not-looked-for",
        breaks="after a fail-over the last messages that were moved are moved again",
        at="acts.py::missing_acts",
        old="not found.stored_count",
        new="True",
        tests=(
            f"{_TESTS}/test_timer_progress.py"
            "::test_a_new_master_does_exactly_the_acts_that_are_not_stored",
        ),
    ),
    Mutant(
        name="plan-outlives-its-basis",
        breaks="a message whose recall failed on a full disk is never delivered",
        at="term.py::TimerTerm.intend",
        old="basis is not progress",
        new="False",
        tests=(
            f"{_TESTS}/test_timer_journal.py"
            "::test_a_plan_does_not_outlive_a_removal_that_it_counted_on",
        ),
    ),
    Mutant(
        name="cut-batch-marks-all",
        breaks="of more messages than a batch takes the rest is never delivered",
        at="planner.py::_Lane.mark",
        old="self.taken == len(self.due.offsets) and not self.is_cut",
        new="True",
        tests=(
            f"{_TESTS}/test_timer_planner.py"
            "::test_whatever_comes_each_message_is_moved_once_and_not_early",
        ),
    ),
    Mutant(
        name="index-ahead-of-journal",
        breaks="after a power failure messages whose moves were lost are never delivered",
        at="index.py::open_index",
        old="manifest.covered_end > queue_end or manifest.journal_offset > journal_end",
        new="manifest.covered_end > queue_end",
        tests=(
            f"{_TESTS}/test_pending_index.py"
            "::test_an_index_that_knows_more_than_the_log_is_begun_anew",
        ),
    ),
    Mutant(
        name="progress-ahead-of-journal",
        breaks="after a power failure messages whose moves were lost are never delivered",
        at="place.py::read_file",
        old="place.next_offset > journal_end",
        new="False",
        tests=(
            f"{_TESTS}/test_timer_progress.py"
            "::test_a_file_that_is_ahead_of_the_journal_or_damaged_does_not_count",
        ),
    ),
    Mutant(
        name="loaded-without-what-was-fed",
        breaks="a message that came while others were read from the disk is delivered after a "
        "restart only",
        at="index.py::PendingIndex.finish",
        old="for rows in self._fed",
        new="for rows in ()",
        tests=(
            f"{_TESTS}/test_pending_index.py"
            "::test_what_is_fed_while_others_are_read_from_the_disk_is_found",
        ),
    ),
    Mutant(
        name="level-waits-for-a-clock-ahead",
        breaks="a level waits a year for a message stored while the clock was a year ahead",
        at="planner.py::Planner.plan",
        old="self._rolls(progress, now_ms) if moves is None else moves",
        new="moves",
        tests=(
            f"{_TESTS}/test_timer_planner.py"
            "::test_what_a_level_has_ahead_waits_on_among_the_times_and_holds_up_nothing",
        ),
    ),
    Mutant(
        name="clients-displace-the-brokers-windows",
        breaks="after an outage of hours the last message that was moved is moved again",
        at="producer_windows.py::ProducerWindows._with",
        old="name.producer_id < BROKER_PRODUCER_IDS",
        new="name.producer_id >= 0",
        tests=(
            "tests/store/engine/test_producer_windows.py"
            "::test_clients_do_not_displace_what_the_broker_itself_has_stored",
        ),
    ),
    Mutant(
        name="recalled-by-id-alone",
        breaks="recalling one of two delayed messages with one id and time recalls both",
        at="schedule.py::Schedule._named",
        old="if name.content:",
        new="if False:",
        tests=(
            "tests/broker/sending/test_equal_ids.py"
            "::test_each_of_two_delayed_messages_with_one_id_and_time_is_recalled_alone",
        ),
    ),
    Mutant(
        name="rolled-on-what-was-refused",
        breaks="a message whose recall the log refused is lost when the log moves on",
        at="mover.py::Mover.act_out_of_turn",
        old="basis=basis or term.progress",
        new="basis=term.progress",
        tests=(
            "tests/broker/delayed/test_rolling.py"
            "::test_a_recall_that_came_to_nothing_while_messages_moved_on_loses_none",
        ),
    ),
)
