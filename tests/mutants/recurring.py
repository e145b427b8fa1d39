"""Errors in schedules, and in transactions of several messages."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_SCHEDULES = "tests/broker/recurring/test_virtual_schedules.py"
_SEVERAL = "tests/producer_client/test_several.py"

RECURRING: Final = (
    Mutant(
        name="open-run-is-sent-again",
        breaks="a run whose master died after it was stored is sent twice",
        at="runner.py::Runner._is_stored",
        old="found is None or found.stored_count > 0",
        new="False",
        tests=(
            f"{_SCHEDULES}::test_a_power_cut_between_a_run_and_its_message_loses_and_doubles_none",
        ),
    ),
    Mutant(
        name="open-run-is-forgotten",
        breaks="a run whose message found no room is never sent",
        at="runner.py::Runner._is_stored",
        old="found is None or found.stored_count > 0",
        new="True",
        tests=(f"{_SCHEDULES}::test_a_run_whose_message_found_no_room_is_sent_once_there_is_some",),
    ),
    Mutant(
        name="late-run-is-sent-as-if-on-time",
        breaks="a run of hours ago is sent although its schedule skips what it missed",
        at="schedules.py::step_of",
        old="now_ms - last_ms <= LATE_MS",
        new="now_ms >= last_ms",
        tests=(
            "tests/broker/recurring/test_schedule_state.py"
            "::test_a_run_that_is_more_than_a_minute_late_is_skipped_or_sent_by_the_rule",
        ),
    ),
    Mutant(
        name="lead-is-not-asked",
        breaks="messages of one transaction are decided by different checks",
        at="checks.py::CheckListener._answer",
        old="if lead := check.message.properties.get(LEAD):",
        new="if lead := '':",
        tests=(f"{_SEVERAL}::test_a_broker_that_is_killed_before_the_end_changes_no_decision",),
    ),
)
