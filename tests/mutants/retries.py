"""Errors in messages that are sent back."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_TESTS = "tests/broker/retries"
_SIMULATED = "tests/simulation/test_journal_worlds.py"

RETRIES: Final = (
    Mutant(
        name="resent-letters-go-to-everybody",
        breaks="groups that had nothing to do with a dead letter get its message twice",
        at="client_core/dead_letters.py::DeadLetters.resend",
        old="topic if topic or to_all_groups else retry_topic(group)",
        new="topic",
        tests=(
            "tests/cli/test_dead_letters.py::test_only_the_group_that_failed_gets_a_resent_letter",
        ),
    ),
    Mutant(
        name="letters-resent-where-nobody-reads",
        breaks="a resent letter of an ordered group is lost",
        at="retries/dead_letters.py::DeadLetters.resend",
        old="is_to_group and not self._reads_retries(group)",
        new="is_to_group and not group",
        tests=(
            "tests/cli/test_dead_letters.py"
            "::test_letters_of_an_ordered_group_go_to_all_groups_or_stay",
        ),
    ),
    Mutant(
        name="copies-not-looked-for",
        breaks="after a fail-over a failed message comes again twice",
        at="copies.py::is_stored",
        old="None if found is None else found.stored_count > 0",
        new="None if found is None else False",
        tests=(
            f"{_SIMULATED}::test_what_is_told_stays_true_and_everything_else_comes_once"
            "[send_backs]",
        ),
    ),
    Mutant(
        name="copies-not-owed",
        breaks="a failed message whose copy was not written before a crash never comes again",
        at="writer.py::OffsetWriter.__init__",
        old="self._owed = {entry.number: entry for entry in state.open_copies}",
        new="self._owed: dict[int, SentBack] = {}",
        tests=(
            f"{_SIMULATED}::test_what_is_told_stays_true_and_everything_else_comes_once"
            "[send_backs]",
        ),
    ),
    Mutant(
        name="attempt-not-journalled",
        breaks="after a fail-over a message that was sent back comes with fewer attempts again",
        at="state.py::OffsetJournalState._finish_out_of_turn",
        old="not entry.is_repeated",
        new="False",
        tests=(
            f"{_SIMULATED}::test_what_is_told_stays_true_and_everything_else_comes_once"
            "[send_backs]",
        ),
    ),
    Mutant(
        name="repeated-send-back-not-durable",
        breaks="a power cut loses a message that was sent back twice",
        at="send_backs.py::SendBacks._is_finished",
        old="answer.done = writer.make_durable()",
        new="answer.done = None",
        tests=(
            f"{_SIMULATED}::test_of_a_log_that_lost_more_than_it_may_everything_left_comes"
            "[send_backs]",
        ),
    ),
    Mutant(
        name="reset-keeps-what-is-finished",
        breaks="whoever resets a group to see messages again does not get all of them",
        at="state.py::OffsetJournalState._change",
        old="if entry.change.kind is ChangeKind.RESET:",
        new="if False:",
        tests=(
            f"{_TESTS}/test_sent_back_in_the_journal.py"
            "::test_a_commit_passes_what_is_finished_and_a_reset_takes_it_back",
        ),
    ),
    Mutant(
        name="image-finishes-again",
        breaks="after a reset a slave that becomes master leaves messages out",
        at="writer.py::OffsetWriter._image_out_of_turn",
        old="ranges is None or self._is_taking_back(key)",
        new="ranges is None",
        tests=(
            f"{_TESTS}/test_sent_back_in_the_journal.py"
            "::test_an_image_does_not_finish_again_what_a_reset_has_taken_back",
        ),
    ),
    Mutant(
        name="default-limit-in-order",
        breaks="in an outage of minutes ordered messages become dead letters",
        at="policy.py::RetryPolicy.limit_in_order",
        old="self.retries_max if self.is_limit_set and self.retries_max >= 0 else None",
        new="self.limit",
        tests=(
            f"{_TESTS}/test_trying_in_order.py"
            "::test_an_outage_of_any_length_ends_in_no_dead_letter_unless_somebody_set_a_limit",
        ),
    ),
)
