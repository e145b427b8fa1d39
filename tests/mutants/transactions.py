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
        old="stretch.check()\nis_stored =",
        new="is_stored =",
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
        old="properties[_N.CLIENT] = at.client",
        new="pass",
        tests=(
            "tests/broker/sending/test_equal_ids.py"
            "::test_whatever_two_messages_with_one_id_differ_in_they_are_two",
        ),
    ),
)
