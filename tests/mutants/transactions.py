"""Errors in transactions: what a new master believes to be open."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_TESTS = "tests/broker/transactions"

TRANSACTIONS: Final = (
    Mutant(
        name="half-taken-unread",
        breaks="a message of a transaction that is sent again to a new master is delivered twice",
        at="known.py::KnownHalves.check_takes",
        old="not self._is_complete",
        new="False",
        tests=(
            f"{_TESTS}/test_ends.py"
            "::test_a_master_that_still_reads_which_are_open_stores_none_a_second_time",
        ),
    ),
    Mutant(
        name="ended-together-forgotten",
        breaks="of commits that share an intent, a crash delivers all but the last one twice",
        at="intents.py::CommitIntent.decode",
        old="(*others, last)",
        new="(last,)",
        tests=(
            f"{_TESTS}/test_ends_together.py"
            "::test_a_log_that_ends_among_their_messages_has_ended_those_that_are_there",
        ),
    ),
    Mutant(
        name="commit-before-op-message",
        breaks="a commit hides the intent of the last ones, whose messages a crash delivers again",
        at="end_turns.py::EndTurns._commit",
        old="self.ops.pay()",
        new="",
        tests=(
            f"{_TESTS}/test_ends_together.py"
            "::test_no_commit_begins_before_the_last_ones_have_their_op_message",
        ),
    ),
    Mutant(
        name="decided-twice-in-a-turn",
        breaks="of two contradicting ends that come at once, both are carried out",
        at="end_turns.py::EndTurns._chosen",
        old="name in names or name in self.ending",
        new="name in self.ending",
        tests=(f"{_TESTS}/test_ends_together.py::test_contradicting_ends_of_one_turn_are_one",),
    ),
    Mutant(
        name="half-twice-in-a-frame",
        breaks="a half message that a frame has twice is stored twice",
        at="half_ingest.py::HalfIngest._accept_together",
        old="len(dict(half.messages)) < len(batches)",
        new="False",
        tests=(
            "tests/broker/sending/test_half_frames.py"
            "::test_one_that_a_frame_has_twice_is_stored_once",
        ),
    ),
    Mutant(
        name="lost-ends-believed",
        breaks="an open transaction whose end a lossy election lost is forgotten with its message",
        at="state.py::cut_mark",
        old="table.remove_all(TRANSACTIONS_GROUP, None)",
        new="",
        tests=(
            "tests/broker/life/test_opening_after_power_failure.py"
            "::test_transactions_that_were_done_in_a_lost_log_are_looked_at_again",
        ),
    ),
    Mutant(
        name="not-left-if-cut-off",
        breaks="after a hand-over that was called off nobody is asked about open transactions",
        at="leading.py::Leading.leave",
        old="finally:",
        new="else:",
        tests=(f"{_TESTS}/test_checks.py::test_a_hand_over_that_is_called_off_goes_on_asking",),
    ),
    Mutant(
        name="leftovers-not-waited-for",
        breaks="after a crash an operator may end again what was half set aside",
        at="leading.py::Leading._do_what_is_due",
        old="self._ends.drop_leftovers() or was_missing",
        new="(self._ends.drop_leftovers() and False) or was_missing",
        tests=(
            f"{_TESTS}/test_checks.py"
            "::test_after_a_death_while_a_message_is_set_aside_its_producers_may_still_end_it",
        ),
    ),
    Mutant(
        name="finished-after-it-left",
        breaks="a master that hands over writes on in a term that it has left",
        at="leading.py::Leading._finish_newest",
        old="stretch.check()\nreturn self._ends",
        new="return self._ends",
        tests=(
            "tests/broker/replication/test_left_terms.py"
            "::test_a_break_in_a_hand_over_ends_each_transaction_once",
        ),
    ),
    Mutant(
        name="known-by-id-alone",
        breaks="a committed message is never delivered, because another one has the same id",
        at="known.py::KnownHalves.standing",
        old="known[1] == content",
        new="True",
        tests=(
            "tests/broker/sending/test_equal_ids.py"
            "::test_each_of_two_messages_with_one_id_ends_as_its_producer_says",
        ),
    ),
    Mutant(
        name="told-apart-by-id-alone",
        breaks="of two messages that Apache's broker stored with one id, both end as one does",
        at="pending.py::PendingHalves.read_half",
        old="half = self._told_apart(half)",
        new="",
        tests=(
            "tests/broker/sending/test_equal_ids.py"
            "::test_two_messages_with_one_id_that_apaches_broker_stored_are_two_transactions",
        ),
    ),
    Mutant(
        name="senders-not-told-apart",
        breaks="of two clients that send the same message with one id, one ends both",
        at="records.py::stored_properties",
        old="properties[_N.CLIENT] = client_mark(at.client)",
        new="pass",
        tests=(
            "tests/broker/sending/test_equal_ids.py"
            "::test_whatever_two_messages_with_one_id_differ_in_they_are_two",
        ),
    ),
    Mutant(
        name="handed-unconfirmed",
        breaks="what was not replicated yet counts as done, and a new master has never heard of it",
        at="handed.py::Handed.take",
        old="self.begins_after(next_offset) != 0 or self._handed[0].end > confirmed_end",
        new="self.begins_after(next_offset) != 0",
        tests=(
            "tests/broker/transactions/test_handed.py"
            "::test_nothing_is_taken_before_it_is_confirmed_or_past_what_is_missing",
        ),
    ),
)
