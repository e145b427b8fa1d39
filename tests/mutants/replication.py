"""Errors in replication and election: what is confirmed, who is in sync, who may lead."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

REPLICATION: Final = (
    # ----------------------------------------------------------------------------- registered
    Mutant(
        name="ends-at-a-registration-of-yesterday",
        breaks="healthy brokers end themselves after etcd was restored from a snapshot",
        at="registration.py::Registration._note_failure",
        old="now_s - self._duplicate_since_s >= self._duplicate_wait_s()",
        new="self._registered_once",
        tests=(
            "tests/broker/cluster/test_registration.py"
            "::test_a_registered_broker_outlasts_a_registration_that_a_restored_etcd_brings_back",
        ),
    ),
    # ------------------------------------------------------------------------------ confirmed
    Mutant(
        name="own-end-before-the-disk",
        breaks="under synchronous flush a message is acknowledged before it is on the disk",
        at="durability.py::Durability.advance",
        old="own_end = store.flushed_end if self._is_sync_flush else store.appended_end",
        new="own_end = store.appended_end",
        tests=(
            "tests/broker/replication/test_roles_durability.py"
            "::test_disk_and_replicas_go_in_parallel_and_both_must_have_it",
        ),
    ),
    Mutant(
        name="confirmed-by-the-fastest",
        breaks="a message is acknowledged that only one replica in sync has",
        at="master_term.py::MasterTerm.confirm",
        old="min(end, progress.acknowledged_end if progress and known else 0)",
        new="max(end, progress.acknowledged_end if progress and known else 0)",
        tests=("tests/broker/replication/test_replication_decisions.py::TestTerm",),
    ),
    Mutant(
        name="confirmed-without-the-absent",
        breaks="a message is acknowledged that an absent replica lacks, and may lead without",
        at="master_term.py::MasterTerm.confirm",
        old="if progress and known else 0",
        new="if progress and known else end",
        tests=("tests/broker/replication/test_replication_decisions.py::TestTerm",),
    ),
    Mutant(
        name="slave-acknowledges-before-its-disk",
        breaks="with synchronous flush a power failure of all replicas loses what was acknowledged",
        at="log_copy.py::LogCopy._acknowledge",
        old="stored_end = flushed_end if self._limits.flush_is_sync else store.appended_end",
        new="stored_end = store.appended_end",
        tests=(
            "tests/broker/replication/test_replication_stream.py"
            "::test_under_sync_flush_only_what_is_flushed_is_acknowledged",
        ),
    ),
    Mutant(
        name="slave-wakes-no-reader",
        breaks="a consumer that waits at a slave gets a message only when its wait is over",
        at="dispatcher.py::Dispatcher._dispatch_chunk",
        old="grown[queue.topic, queue.queue_id] = None",
        new="",
        tests=(
            "tests/store/engine/test_replicated_appends.py"
            "::test_readers_at_a_slave_hear_which_queues_grew_once_it_is_confirmed",
        ),
    ),
    Mutant(
        name="growth-told-to-nobody",
        breaks="a consumer that waits gets a message only when its wait is over",
        at="dispatcher.py::Dispatcher.dispatch",
        old="told(grown)",
        new="told({})",
        tests=(
            "tests/broker/reading/test_slave_reads.py"
            "::test_a_reader_that_waits_at_a_slave_gets_what_its_master_confirms_at_once",
        ),
    ),
    # ------------------------------------------------------------------------------ the set
    Mutant(
        name="in-sync-without-the-history",
        breaks="a replica counts as in sync that shares no epoch with its master yet",
        at="master_term.py::MasterTerm._wanted",
        old="has_confirmed and is_recent and progress.has_history",
        new="has_confirmed and is_recent",
        tests=(
            "tests/broker/replication/test_replication_decisions.py"
            "::test_a_newcomer_is_in_sync_only_once_it_has_stored_the_masters_history",
        ),
    ),
    Mutant(
        name="in-sync-without-the-confirmed",
        breaks="a replica may lead that lacks messages which were acknowledged before it joined",
        at="master_term.py::MasterTerm._wanted",
        old="has_confirmed and is_recent and progress.has_history",
        new="is_recent and progress.has_history",
        tests=(
            "tests/broker/replication/test_replication_decisions.py"
            "::test_a_newcomer_is_in_sync_only_once_it_has_all_that_is_confirmed",
        ),
    ),
    Mutant(
        name="in-sync-as-long-as-connected",
        breaks="a replica that hangs keeps every send from being acknowledged for as long",
        at="master_term.py::MasterTerm._wanted",
        old="is_recent = now_s - self.caught_up_s(name) <= self.policy.in_sync_lag_s",
        new="is_recent = name.broker_id in self._progress or (\n"
        "                now_s - self.caught_up_s(name) <= self.policy.in_sync_lag_s\n"
        "            )",
        tests=(
            "tests/broker/replication/test_roles_manager.py"
            "::test_a_replica_that_has_caught_up_joins_the_set_and_a_silent_one_leaves_it",
        ),
    ),
    # ------------------------------------------------------------------------------ joining
    Mutant(
        name="joins-under-an-earlier-epoch",
        breaks="a replica copies a new master's log as if it were its earlier one's",
        at="roles.py::Roles.check_joining",
        old="epoch < term.epoch",
        new="epoch < 0",
        tests=(
            "tests/broker/replication/test_roles_manager.py"
            "::test_a_replica_that_is_still_under_an_earlier_epoch_does_not_join",
        ),
    ),
    Mutant(
        name="logs-equal-too-far",
        breaks="a replica keeps messages that its master never had",
        at="epoch_history.py::common_end",
        old="min(history.part_end(index, log_end), other.part_end(match, other_end))",
        new="history.part_end(index, log_end)",
        tests=(
            "tests/broker/replication/test_replication_decisions.py"
            "::test_two_logs_are_equal_up_to_their_common_end",
        ),
    ),
    # ------------------------------------------------------------------------------ leading
    Mutant(
        name="lease-from-the-newest-heartbeat",
        breaks="a master that is cut off acts on while another one is elected",
        at="master_lease.py::MasterLease.renewed",
        old="self._sent[0][1]",
        new="self._sent[-1][1]",
        tests=(
            "tests/broker/replication/test_roles_mastership.py"
            "::test_a_renewal_says_nothing_of_heartbeats_that_were_sent_after_it",
        ),
    ),
    Mutant(
        name="leads-before-its-epoch-is-on-disk",
        breaks="after a crash messages of an epoch are in the log, and the epoch is not",
        at="role_manager.py::adopt_history",
        old="await folder.save_history(history)\nroles.history = history",
        new="roles.history = history\n"
        "saving = asyncio.ensure_future(folder.save_history(history))\n"
        "saving.add_done_callback(lambda done: done.cancelled() or done.exception())",
        tests=(
            "tests/broker/replication/test_roles_manager.py"
            "::test_a_promotion_has_its_epoch_on_disk_before_anything_is_done_under_it",
        ),
    ),
    # ------------------------------------------------------------------------------ elections
    Mutant(
        name="election-below-the-logs-epochs",
        breaks="two masters have the same epoch after the record of a replica set was lost",
        at="election.py::elect",
        old="epoch = max(replica_set.epoch, max(record.log_epoch for record in live.values())) + 1",
        new="epoch = replica_set.epoch + 1",
        tests=(
            "tests/nameserver/test_election_races.py"
            "::test_a_record_that_was_deleted_comes_back_with_a_higher_epoch",
        ),
    ),
    Mutant(
        name="election-of-a-short-log",
        breaks="a replica is elected that lacks what was confirmed, and nothing says so",
        at="election.py::_choose",
        old="if record.log_end >= confirmed_end",
        new="",
        tests=(
            "tests/nameserver/test_election_rules.py"
            "::test_nobody_is_elected_cleanly_whose_log_ends_before_what_was_confirmed",
        ),
    ),
    Mutant(
        name="election-although-the-master-came-back",
        breaks="a master that has just registered again is deposed, and its senders fail",
        at="election.py::elect",
        old="expects[key] = 0 if former is None else former.revision",
        new="expects.setdefault(key, -1)\ndel expects[key]",
        tests=(
            "tests/nameserver/test_election_races.py"
            "::test_a_master_that_registers_again_before_the_election_stays_master",
        ),
    ),
    Mutant(
        name="set-changed-under-an-old-epoch",
        breaks="a deposed master takes out of the set who has everything",
        at="election.py::alter_in_sync_set",
        old="(replica_set.master_id, replica_set.master_instance, "
        "replica_set.epoch) != (*master, epoch)",
        new="(replica_set.master_id, replica_set.master_instance) != master",
        tests=(
            "tests/nameserver/test_election_races.py"
            "::test_only_the_master_of_the_epoch_changes_the_set",
        ),
    ),
    Mutant(
        name="acknowledged-before-it-is-flushed",
        breaks="under synchronous flush, a power cut loses what the slave said it had",
        at="log_copy.py::LogCopy._acknowledge_at_once",
        old="self._limits.flush_is_sync or self._told is None",
        new="self._told is None",
        tests=(
            "tests/broker/replication/test_replication_at_once.py"
            "::test_an_acknowledgement_leaves_before_news_is_passed_on",
        ),
    ),
)
