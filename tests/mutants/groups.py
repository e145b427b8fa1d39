"""Errors in consumer groups at the broker: committed offsets and queue leases."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

GROUPS: Final = (
    # ------------------------------------------------------------------------------ offsets
    Mutant(
        name="commit-counts-unconfirmed",
        breaks="a commit is acknowledged that the next master does not know",
        at="writer.py::JournalWriter._write",
        old="self._log.when_confirmed(end, lambda reached: "
        "self._on_confirmed(batch, end, reached))",
        new="self._loop.call_soon(self._on_confirmed, batch, end, True)",
        tests=(
            "tests/broker/journal/test_offset_journal.py"
            "::test_a_commit_counts_when_its_record_is_confirmed_and_not_before",
        ),
    ),
    Mutant(
        name="commit-forgotten-after-a-refusal",
        breaks="after a full disk a commit moves an offset back that is still on its way",
        at="writer.py::JournalWriter._drop",
        old="self._term.dropped(self.waiting())",
        new="self._term.dropped(())",
        tests=(
            "tests/broker/journal/test_offset_journal.py::test_what_the_log_refuses_leaves_no_trace",
        ),
    ),
    Mutant(
        name="commit-moves-back",
        breaks="a group reads again what another member of it has finished",
        at="merge.py::merge",
        old="max(offset, standing.offset)",
        new="offset",
        tests=(
            "tests/broker/offsets/test_offset_merge.py::test_without_a_reset_no_offset_moves_back",
        ),
    ),
    Mutant(
        name="reset-fences-nobody",
        breaks="the member that had the queue undoes a reset with its next commit",
        at="merge.py::merge",
        old="fence = lease_epoch + 1 if",
        new="fence = lease_epoch if",
        tests=(
            "tests/broker/offsets/test_offset_merge.py"
            "::test_a_member_that_lost_its_queue_by_a_reset_moves_nothing_any_more",
        ),
    ),
    Mutant(
        name="reset-before-the-disk",
        breaks="a reset that was acknowledged is undone by a power failure",
        at="consumer_offsets.py::ConsumerOffsets.reset",
        old="is_durable=True",
        new="is_durable=False",
        tests=(
            "tests/broker/offsets/test_offsets.py"
            "::test_the_first_commit_and_a_reset_are_on_disk_before_they_are_acknowledged",
        ),
    ),
    Mutant(
        name="first-commit-before-the-disk",
        breaks="after a power failure a group begins somewhere else than it did",
        at="consumer_offsets.py::ConsumerOffsets.commit",
        old="is_durable=standing is None",
        new="is_durable=False",
        tests=(
            "tests/broker/offsets/test_offsets.py"
            "::test_the_first_commit_and_a_reset_are_on_disk_before_they_are_acknowledged",
        ),
    ),
    # ------------------------------------------------------------------------------ leases
    Mutant(
        name="commit-under-any-earlier-lease",
        breaks="a member that lost its queue commits for the one that has it now",
        at="queue_leases.py::QueueLeases.is_current",
        old="held is not None and held.epoch == epoch",
        new="held is not None and held.epoch >= epoch",
        tests=(
            "tests/broker/groups/test_membership.py"
            "::test_a_queue_passes_to_the_next_member_with_the_last_committed_offset",
        ),
    ),
    Mutant(
        name="anybody-lifts-a-block",
        breaks="two members work on one queue after a reset",
        at="queue_leases.py::QueueLeases._lift_block",
        old="block is None or block[0] != client_id",
        new="block is None",
        tests=(
            "tests/broker/groups/test_queue_leases.py"
            "::test_nobody_elses_asking_or_giving_back_shows_that_the_former_holder_has_heard",
        ),
    ),
    Mutant(
        name="block-ends-with-the-last-heartbeat",
        breaks="a queue is given away while its former holder may still work on it",
        at="ownership.py::Ownership.revoke",
        old="self.leases.revoke(key, member.deadline_s)",
        new="self.leases.revoke(key, member.last_heartbeat_s)",
        tests=(
            "tests/broker/groups/test_group_coordinator.py"
            "::test_a_queue_that_was_taken_waits_until_its_holders_session_could_have_ended",
        ),
    ),
    Mutant(
        name="lease-beside-pop",
        breaks="a member and POP work on one queue",
        at="ownership.py::Ownership.acquire",
        old="self._is_popped(key)",
        new="False",
        tests=(
            "tests/broker/groups/test_ownership.py::test_a_member_gets_no_lease_on_a_queue_that_pop_has",
        ),
    ),
    Mutant(
        name="clean-end-forgets-former-holders",
        breaks="a restart gives a queue away while its former holder may still work on it",
        at="queue_leases.py::QueueLeases.unsure_until_s",
        old="block_ends_s = [until_s for _, until_s in self._blocks.values()]",
        new="block_ends_s = list[float]()",
        tests=(
            "tests/broker/groups/test_run_record.py"
            "::test_a_stop_while_a_former_holder_may_still_work_does_not_count_as_clean",
        ),
    ),
    Mutant(
        name="planned-end-forgets-the-grace",
        breaks="after a hand-over a queue is given away while its former holder may still work",
        at="queue_leases.py::QueueLeases.unsure_until_s",
        old="block_ends_s.append(self._grace_end_s)",
        new="pass",
        tests=(
            "tests/broker/groups/test_run_record.py"
            "::test_a_planned_end_within_the_grace_leaves_the_rest_of_it_to_the_next_run",
        ),
    ),
    Mutant(
        name="longer-session-not-recorded",
        breaks="after a crash queues are given away before a member with a long session stops",
        at="current_run.py::CurrentRun.promise_session",
        old="self._is_recorded and timeout_ms <= self._record.session_timeout_max_ms",
        new="self._is_recorded",
        tests=(
            "tests/broker/groups/test_run_record.py"
            "::test_a_longer_session_is_on_disk_before_it_is_granted",
        ),
    ),
    Mutant(
        name="clean-end-not-in-the-journal",
        breaks="after a handover all members of a group wait for a whole session",
        at="current_run.py::CurrentRun.record_end",
        old="self._is_recorded or not self._was_clean",
        new="False",
        tests=(
            "tests/broker/journal/test_offset_journal_leases.py"
            "::test_after_a_clean_end_the_next_master_takes_members_and_leases_over",
        ),
    ),
    # ------------------------------------------------------------------------------ Apache's POP
    Mutant(
        name="revived-by-apache-comes-again",
        breaks="what Apache's broker had revived comes once more after a change of owner",
        at="revivals.py::Revivals._settle_queue",
        old="begin = 0 if known is None else known + 1",
        new="begin = 0 if known is None else known",
        tests=(
            "tests/broker/popping/test_revivals.py"
            "::test_what_apaches_broker_has_revived_does_not_come_again",
        ),
    ),
    Mutant(
        name="left-round-goes-on",
        breaks="a master that hands over redelivers on in a term that it has left",
        at="term_keeper.py::TermKeeper._break",
        old="stretch.is_over = True",
        new="pass",
        tests=(
            "tests/broker/replication/test_left_terms.py"
            "::test_a_break_in_a_hand_over_loses_and_repeats_no_message_that_apache_handed_out",
            "tests/broker/replication/test_left_terms.py"
            "::test_a_break_in_a_hand_over_ends_each_transaction_once",
        ),
    ),
    Mutant(
        name="record-applied-twice",
        breaks="a hand-over fails, or a state goes back, because a record was read while it was "
        "confirmed",
        at="journal.py::Journal._follow",
        old="self._term is None and await self._follower.step()",
        new="await self._follower.step()",
        tests=(
            "tests/broker/journal/test_journal_terms.py"
            "::test_any_order_of_terms_and_records_loses_nothing_of_a_journal",
        ),
    ),
    Mutant(
        name="copies-forgotten",
        breaks="a message that Apache's broker handed out comes again while an older one waits",
        at="revivals.py::Revivals._settle_queue",
        old="place[0] != queue or place[1] >= done",
        new="False",
        tests=(
            "tests/broker/replication/test_left_terms.py"
            "::test_a_break_in_a_hand_over_loses_and_repeats_no_message_that_apache_handed_out",
        ),
    ),
    # ------------------------------------------------------------------------------ changed tables
    Mutant(
        name="changed-table-believed",
        breaks="a group begins again because something else took it out of the table of offsets",
        at="opening.py::open_offsets",
        old="not offsets.is_as_written",
        new="False",
        tests=(
            "tests/broker/offsets/test_doubted_offsets.py"
            "::test_what_a_table_lacks_is_taken_from_the_journal",
        ),
    ),
    Mutant(
        name="fences-of-a-changed-table",
        breaks="an offset that was lowered in the table stays so although the journal has more",
        at="consumer_offset_table.py::ConsumerOffsetTable.doubt",
        old="self._epochs.clear()",
        new="",
        tests=(
            "tests/broker/offsets/test_doubted_offsets.py"
            "::test_the_journal_makes_any_table_right_whose_offsets_were_lowered",
        ),
    ),
    Mutant(
        name="settings-deleted-again",
        breaks="reading the journal again deletes the settings of a group that was made again",
        at="state.py::OffsetJournalState.apply",
        old="entry.group is not None and entry.topic is None and self._doubted is None",
        new="entry.group is not None and entry.topic is None",
        tests=(
            "tests/broker/offsets/test_doubted_offsets.py"
            "::test_reading_the_journal_again_deletes_no_settings_of_a_group_that_was_made_again",
        ),
    ),
    # ------------------------------------------------------------------------------ polls elsewhere
    Mutant(
        name="rings-missed-while-looking",
        breaks="a poll waits on at another node, although a message came while it looked",
        at="bells.py::FarWaiter.ring",
        old="self._was_missed = True\nreturn False",
        new="return False",
        tests=(
            "tests/broker/popping/test_bells.py"
            "::test_another_node_is_told_once_until_it_has_looked_and_again_if_more_has_come",
        ),
    ),
    Mutant(
        name="takes-of-gone-clients-kept",
        breaks="what a client that has gone did not get from another broker is lost for a while",
        at="receives.py::Receives._take",
        old="self._give_back(asked, far.name, handles)",
        new="pass",
        tests=(
            "tests/testing/test_virtual_rings.py"
            "::test_a_client_that_goes_while_it_is_answered_gives_back_what_is_of_another_broker",
        ),
    ),
    Mutant(
        name="wishes-not-repeated",
        breaks="a poll hears of the first message at another broker, and of no other",
        at="rings.py::Far.gave",
        old="self.line.say(self, Kind.RING)",
        new="pass",
        tests=(
            "tests/testing/test_virtual_rings.py"
            "::test_a_poll_gets_what_comes_to_any_broker_at_once",
        ),
    ),
    Mutant(
        name="successor-read-at-once",
        breaks="a group reads a key's newer messages before it has finished the retired queue",
        at="succession.py::Succession.waiting",
        old="not (route.successors and route.keeps_order)",
        new="True",
        tests=(
            "tests/cluster_view/test_succession.py"
            "::test_a_queue_waits_until_the_old_one_is_finished_and_takes_nothing_more",
        ),
    ),
    Mutant(
        name="new-master-of-a-retired-queue-takes-more",
        breaks="a retired queue that was reported as sealed grows again after a fail-over",
        at="retired_topics.py::RetiredTopics.hear",
        old="known.write_queue_count and is_master",
        new="known.write_queue_count",
        tests=(
            "tests/broker/cluster/test_retired_topics.py"
            "::test_who_hears_of_it_as_a_slave_refuses_at_once",
        ),
    ),
    Mutant(
        name="sealed-before-it-is-seen",
        breaks="a group begins with the successor while the old queue's last message is on its way",
        at="retired_topics.py::RetiredTopics.is_sealed",
        old="self._log.dispatched_end >= end",
        new="True",
        tests=(
            "tests/broker/cluster/test_retired_topics.py"
            "::test_a_topic_is_sealed_once_consumers_see_what_was_taken_last",
        ),
    ),
    # ------------------------------------------------------------------------------ remoting
    Mutant(
        name="lock-forgotten-with-its-master",
        breaks="after a fail-over two members of an ordered group handle messages of one queue",
        at="locks.py::OrderLocks._lock",
        old="or self._offsets.last_client(key)",
        new='or ""',
        tests=(
            "tests/broker/edge/test_remoting_replies.py"
            "::test_after_a_restart_a_lock_waits_for_its_last_holder",
        ),
    ),
    Mutant(
        name="dead-letter-told-by-its-id-alone",
        breaks="of two messages with one id that a consumer gives up, only one is a dead letter",
        at="dead_letters.py::_Given.of",
        old="hashlib.sha256(record.body).digest()",
        new='b""',
        tests=(
            "tests/broker/edge/test_remoting_replies.py"
            "::test_a_message_given_up_twice_is_one_dead_letter",
        ),
    ),
    Mutant(
        name="reset-known-before-it-is-told",
        breaks="a remoting client goes on with messages that an operator's reset has passed",
        at="progress.py::Progress.offset_set",
        old="offset, False",
        new="offset, True",
        tests=(
            "tests/broker/edge/test_remoting.py"
            "::test_a_reader_that_has_pulled_everything_is_told_of_a_reset_to_the_end",
        ),
    ),
)
