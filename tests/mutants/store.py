"""Errors in the store: recovery, flushing, queues, indexes, producers, retention, records."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_TESTS = "tests/store/engine"

STORE: Final = (
    # ------------------------------------------------------------------------------ recovery
    Mutant(
        name="recovery-believes-checksums",
        breaks="damaged bytes at the log's end are served as messages after a crash",
        at="recover.py::_Recovery._scan",
        old="context.config.check_crc_on_recovery",
        new="False",
        tests=(
            f"{_TESTS}/test_recovery.py::test_a_stale_record_behind_the_cut_does_not_come_back",
        ),
    ),
    Mutant(
        name="recovery-cuts-what-queues-know",
        breaks="damage inside a log that was closed in order is cut off without a word",
        at="recover.py::_Recovery._judge",
        old="max(safe_end, self._queues.known_behind(end))",
        new="safe_end",
        tests=(
            f"{_TESTS}/test_recovery.py"
            "::test_an_apache_store_closed_cleanly_is_judged_by_its_queues",
        ),
    ),
    Mutant(
        name="recovery-starts-by-the-logs-time",
        breaks="queue entries that were not written before a crash are missing for good",
        at="segment_files.py::first_segment_after_crash",
        old="flushed_ms = checkpoint.min_timestamp()",
        new="flushed_ms = checkpoint.physic_msg_timestamp",
        tests=(
            f"{_TESTS}/test_recovery.py"
            "::test_after_a_crash_the_log_is_read_from_the_older_of_the_checkpoints_times",
        ),
    ),
    Mutant(
        name="recovery-syncs-the-active-segment-only",
        breaks="what consumers were shown after a crash is lost by the power failure that follows",
        at="recover.py::_Recovery._cut_log",
        old="kept[context.index_of(start) :]",
        new="kept[-1:]",
        tests=(f"{_TESTS}/test_recovery.py::test_all_that_recovery_serves_is_on_the_disk_then",),
    ),
    # ------------------------------------------------------------------------------ flushing
    Mutant(
        name="flushed-before-it-is",
        breaks="under synchronous flush messages are acknowledged that only memory has",
        at="flush_ledger.py::FlushLedger.finish_flush",
        old="self.flushed_end = work.end",
        new="self.flushed_end = self._log.end",
        tests=(
            f"{_TESTS}/test_flushing.py::test_flushed_end_moves_only_when_the_flush_is_finished",
        ),
    ),
    Mutant(
        name="checkpoint-before-the-index",
        breaks="after a power failure Apache's broker finds no key of the last messages",
        at="flush_work.py::CheckpointWork.run",
        old="if self.index_write is not None:",
        new="write_checkpoint(self._disk, self.checkpoint)\nif self.index_write is not None:",
        tests=(f"{_TESTS}/test_flushing.py::test_the_key_index_is_synced_before_the_checkpoint",),
    ),
    Mutant(
        name="upkeep-before-the-log",
        breaks="after a power failure queues and checkpoint speak of messages that are lost",
        at="flush_thread.py::FlushThread.request",
        old="self._flush.submit(work)",
        new="if work.checkpoint is not None and self._upkeep is not None:\n"
        "    self._upkeep.submit(work.checkpoint)\n"
        "    work.checkpoint = None\n"
        "self._flush.submit(work)",
        tests=(
            "tests/store/flush/test_flush_thread.py"
            "::test_nothing_that_follows_from_the_log_is_written_before_the_log_is_on_the_disk",
        ),
    ),
    # ------------------------------------------------------------------------------ queues
    Mutant(
        name="queue-keeps-an-entry-past-the-log",
        breaks="a queue of a cut log counts a message that is gone, and must be built again",
        at="queue_files.py::cut_queue",
        old="kept = bisect_left(offsets, log_end, key=position_of)",
        new="kept = bisect_left(offsets, log_end + 1, key=position_of)",
        tests=(
            f"{_TESTS}/test_closed_log.py::test_a_cut_log_ends_there_and_what_follows_from_it_too",
        ),
    ),
    Mutant(
        name="queue-keeps-a-file-past-its-end",
        breaks="entries of lost messages come back in a file of the queue",
        at="queue_files.py::remove_queue_files",
        old="entry.name >= first_removed",
        new="entry.name > first_removed",
        tests=(
            f"{_TESTS}/test_derived_files.py"
            "::test_entries_behind_the_end_of_the_log_are_zeroed_in_their_files",
        ),
    ),
    Mutant(
        name="queue-read-stops-before-a-file-ends",
        breaks="readers miss the last message of each queue file",
        at="consume_queue.py::ConsumeQueue._file_pieces",
        old="size = (piece_end - position) * ENTRY_SIZE",
        new="size = (piece_end - position - (piece_end < end)) * ENTRY_SIZE",
        tests=(
            f"{_TESTS}/test_reading.py"
            "::test_reads_cross_from_files_into_memory_and_from_file_to_file",
        ),
    ),
    Mutant(
        name="queue-begins-one-late",
        breaks="the first message that the log still has is in no queue after a removal",
        at="queue_trim.py::QueueTrim._is_kept",
        old="position >= self.log_min_offset",
        new="position > self.log_min_offset",
        tests=(
            f"{_TESTS}/test_queue_trim.py::test_a_queue_begins_at_its_first_message_that_the_log_has",
        ),
    ),
    Mutant(
        name="index-keeps-a-key-past-the-log",
        breaks="a key leads to bytes after the end of a cut log",
        at="index_recovery.py::IndexRecovery._cut_files",
        old="end_physical_offset >= entries_end",
        new="end_physical_offset > entries_end",
        tests=(
            f"{_TESTS}/test_index_recovery.py"
            "::test_entries_that_lead_behind_a_cut_log_do_not_survive",
        ),
    ),
    # ------------------------------------------------------------------------------ replicas
    Mutant(
        name="cut-leaves-a-segment",
        breaks="a replica that cut its log has bytes of an earlier master in it again",
        at="closed_log.py::cut_log",
        old="segments[-1].base > end",
        new="segments[-1].base > end + config.segment_bytes",
        tests=(
            f"{_TESTS}/test_closed_log.py::test_a_cut_log_ends_there_and_what_follows_from_it_too",
        ),
    ),
    Mutant(
        name="cut-keeps-the-checkpoints-time",
        breaks="after a cut and a crash recovery passes over messages by a slower clock",
        at="closed_log.py::_checkpoint_of_cut",
        old="logics_msg_timestamp=min(checkpoint.logics_msg_timestamp, kept_ms)",
        new="logics_msg_timestamp=checkpoint.logics_msg_timestamp",
        tests=(
            f"{_TESTS}/test_closed_log.py"
            "::test_the_checkpoint_of_a_cut_log_knows_no_time_of_what_is_cut_off",
        ),
    ),
    # ------------------------------------------------------------------------------ producers
    Mutant(
        name="window-takes-a-part-for-new",
        breaks="the stored beginning of a batch is stored twice when it is sent again",
        at="window.py::ProducerWindow.standing",
        old="if sequence >= flat[-2]:\n            return NEW",
        new="if sequence + count > flat[-2]:\n            return NEW",
        tests=(f"{_TESTS}/test_producer_windows.py::test_a_batch_is_new_known_or_out_of_sequence",),
    ),
    Mutant(
        name="window-remembers-what-was-cut",
        breaks="a batch that the log has lost is acknowledged when it comes again, and not stored",
        at="window.py::ProducerWindow.cut",
        old="end = min(end, first + queue_end - offset)\nif first < end:",
        new="if offset < queue_end:",
        tests=(
            f"{_TESTS}/test_producer_windows.py"
            "::test_of_batches_in_one_interval_only_the_kept_records_are_remembered_after_a_cut",
        ),
    ),
    Mutant(
        name="window-forgets-one-more",
        breaks="the oldest of the 128 batches that are remembered cannot be sent again",
        at="window.py::ProducerWindow.standing",
        old="sequence < self.floor",
        new="sequence <= self.floor and self.floor",
        tests=(
            f"{_TESTS}/test_producer_windows.py"
            "::test_at_least_the_last_128_batches_are_remembered_and_none_below_is_taken_for_new",
        ),
    ),
    # ------------------------------------------------------------------------------ retention
    Mutant(
        name="retention-before-the-next-segment",
        breaks="a power failure after a removal leaves an empty folder",
        at="retention_ledger.py::RetentionLedger.finish_survey",
        old="segment.end >= self._ledger.flushed_end",
        new="segment.end > self._log.end",
        tests=(
            f"{_TESTS}/test_retention.py"
            "::test_a_segment_stays_until_something_of_the_next_one_is_on_the_disk",
        ),
    ),
    Mutant(
        name="retention-before-the-queues",
        breaks="after a removal and a crash a queue counts from a wrong offset",
        at="retention_ledger.py::RetentionLedger.finish_survey",
        old="segment.end > self.in_files_end",
        new="segment.end > self._log.end",
        tests=(
            f"{_TESTS}/test_retention.py"
            "::test_a_segment_stays_until_its_queue_entries_are_in_their_files",
        ),
    ),
    Mutant(
        name="retention-by-the-fastest-group",
        breaks="messages go that a slower group has not read",
        at="unread_search.py::QueueReaders.oldest",
        old="min(self.offsets.values())",
        new="max(self.offsets.values())",
        tests=(
            "tests/broker/retention/test_unread_readers.py"
            "::test_each_group_counts_from_what_it_committed_where_anybody_is_behind",
            f"{_TESTS}/test_retention.py"
            "::test_a_command_for_unread_messages_counts_exactly_what_each_group_loses",
        ),
    ),
    Mutant(
        name="retention-takes-unreadable-for-read",
        breaks="messages go although nobody knows whether their group has read them",
        at="unread_search.py::_Entries.position",
        old="len(entry) == ENTRY_SIZE else 0",
        new="len(entry) == ENTRY_SIZE else 1 << 62",
        tests=(
            f"{_TESTS}/test_retention_faults.py"
            "::test_messages_whose_queue_file_is_gone_count_as_unread",
        ),
    ),
    Mutant(
        name="retention-by-an-old-answer",
        breaks="a group that is set back while others are asked loses messages unread",
        at="cleaning.py::Cleaning._clean_one",
        old="not changed",
        new="changed is not None",
        tests=(
            "tests/broker/retention/test_cleaning_races.py"
            "::test_an_owner_that_is_asked_after_the_groups_takes_nothing_from_them",
        ),
    ),
    Mutant(
        name="retention-commanded-against-every-owner",
        breaks="a command for unread messages removes what a journal still needs",
        at="cleaning.py::Cleaning._ask",
        old="not (need.is_unread and candidate.request.unread)",
        new="not candidate.request.unread",
        tests=(
            "tests/broker/retention/test_cleaning_races.py"
            "::test_a_command_for_unread_messages_takes_them_and_nothing_else",
        ),
    ),
    # ------------------------------------------------------------------------------ records
    Mutant(
        name="batch-checksums-unchecked",
        breaks="a body that was damaged on its way is stored when it comes in a large batch",
        at="batch.py::_records_of",
        old="return arrays if bodies_match(records, arrays).all() else None",
        new="return arrays",
        tests=(
            "tests/store/format/test_batch.py"
            "::test_each_fault_is_named_with_the_first_record_that_has_it",
        ),
    ),
    Mutant(
        name="small-batch-checksums-unchecked",
        breaks="a body that was damaged on its way is stored when it comes with a few others",
        at="batch.py::_RecordCheck.alike",
        old="or crc32(view[body_start:body_end]) & CRC_MASK != stored_crc",
        new="",
        tests=(
            "tests/store/format/test_batch.py"
            "::test_each_fault_is_named_with_the_first_record_that_has_it",
        ),
    ),
    Mutant(
        name="properties-limit-one-short",
        breaks="properties of the largest size that is allowed are refused",
        at="batch.py::_RecordCheck._check_limits",
        old="properties > properties_bytes_max",
        new="properties >= properties_bytes_max",
        tests=("tests/store/format/test_batch.py::test_limits_are_kept_to_the_byte",),
    ),
    Mutant(
        name="scan-keeps-the-damaged-record",
        breaks="a body that the disk has changed is taken for whole where checksums are asked for",
        at="scan.py::scan_records",
        old="arrays.only(slice(int(np.argmin(sound))))",
        new="arrays.only(slice(int(np.argmin(sound)) + 1))",
        tests=(
            "tests/store/format/test_scan.py"
            "::test_a_changed_body_ends_the_scan_only_if_checksums_are_asked_for",
        ),
    ),
    Mutant(
        name="stamp-of-the-first-record",
        breaks="the messages of a small batch but its first say that they lie somewhere else",
        at="checked_batch.py::CheckedBatch._stamp_one_by_one",
        old="base_physical_offset + start",
        new="base_physical_offset",
        tests=(
            "tests/store/format/test_batch.py"
            "::test_a_legal_batch_is_stamped_like_single_records_either_way",
        ),
    ),
    # ------------------------------------------------------------------------------ long work
    Mutant(
        name="filter-characters-are-free",
        breaks="a filter that searches long texts stops the broker for seconds",
        at="expression.py::SqlExpression.steps",
        old="characters += price * len(value)",
        new="characters += price",
        tests=(
            "tests/domain/sql_filter/test_prices.py"
            "::test_each_operator_is_charged_for_the_characters_that_it_looks_at",
            f"{_TESTS}/test_filtered_reads.py"
            "::test_a_read_ends_once_its_records_have_cost_enough_however_few_they_are",
        ),
    ),
    Mutant(
        name="long-work-takes-turns-alone",
        breaks="pieces of long work of many callers run one after the other, and nothing else",
        at="loop_turns.py::LoopTurns.begin",
        old="self._is_taken",
        new="False",
        tests=(
            "tests/runtime/test_loop_turns.py"
            "::test_all_jobs_together_get_one_piece_per_turn_of_the_loop",
            "tests/broker/reading/test_shared_loop.py"
            "::test_200_callers_with_long_work_delay_another_s_send_by_less_than_100_ms",
        ),
    ),
)
