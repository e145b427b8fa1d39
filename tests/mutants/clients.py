"""Errors between brokers and clients: sending, pulling, sharing queues."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

CLIENTS: Final = (
    # ------------------------------------------------------------------------------ asking
    Mutant(
        name="brokers-that-are-away-are-forgotten",
        breaks="counts without the brokers that are away are taken for the whole",
        at="master_search.py::RollCall.of",
        old="names |= {each.broker_name for each in found.groups}",
        new="",
        tests=(
            "tests/cli/test_partial_answers.py"
            "::test_a_smaller_number_names_the_brokers_that_are_missing",
            "tests/cli/test_partial_answers.py::test_a_count_that_is_not_known_is_null",
        ),
    ),
    Mutant(
        name="a-missing-part-is-a-success",
        breaks="a script takes a part of the answer for all of it",
        at="output.py::remark_unanswered",
        old="context.meta[PARTIAL_ANSWER] = True",
        new="context.meta[PARTIAL_ANSWER] = False",
        tests=(
            "tests/cli/test_partial_answers.py"
            "::test_a_smaller_number_names_the_brokers_that_are_missing",
        ),
    ),
    # ------------------------------------------------------------------------------ sending
    Mutant(
        name="part-of-a-batch-acknowledged-whole",
        breaks="messages of a batch that a crash cut are acknowledged and lost",
        at="ingest.py::Ingest._resent",
        old="receipt.stored_count = stored_count",
        new="",
        tests=(
            "tests/broker/sending/test_resent_batches.py"
            "::test_what_a_crash_left_of_a_batch_is_told_and_the_rest_is_stored_once",
        ),
    ),
    Mutant(
        name="repetition-acknowledged-at-once",
        breaks="under synchronous flush a batch that is sent again is acknowledged from memory",
        at="ingest.py::Ingest._resent",
        old="if stored_count < count:",
        new="receipt.wait_end = 0\nif stored_count < count:",
        tests=(
            "tests/broker/sending/test_resent_batches.py"
            "::test_under_synchronous_flush_a_repetition_waits_like_the_first",
        ),
    ),
    Mutant(
        name="receipts-by-the-first-size",
        breaks="receipts of a frame lead to wrong places in the log",
        at="ingest.py::Ingest._append_run",
        old="physical_offset += len(run.records[index])",
        new="physical_offset += len(run.records[0])",
        tests=(
            "tests/broker/sending/test_sending.py"
            "::test_batches_of_a_frame_are_answered_in_their_order_with_gapless_offsets",
        ),
    ),
    Mutant(
        name="own-record-of-a-slave",
        breaks="a replica that was master appends to its log, and must cut it to follow the next",
        at="append.py::Appender.append",
        old="self._guard.check_may_act()",
        new="",
        tests=("tests/broker/sending/test_own_writes.py::test_a_slave_writes_nothing",),
    ),
    Mutant(
        name="reserve-for-every-own-record",
        breaks="messages that the broker moves take the space that freeing space needs",
        at="own_writes.py::OwnWrites.append",
        old="reserve=reserve",
        new="reserve=True",
        tests=(
            "tests/broker/sending/test_own_writes.py"
            "::test_only_what_asks_for_the_reserve_gets_the_last_space",
        ),
    ),
    Mutant(
        name="failed-append-goes-unheard",
        breaks="a broker whose disk failed stays in the routes",
        at="append.py::Appender.append",
        old="except StoreFailed as error:\n    self._on_store_failed(error)\n    raise",
        new="except StoreFailed:\n    raise",
        tests=("tests/broker/sending/test_own_writes.py::test_a_failed_store_ends_the_broker",),
    ),
    Mutant(
        name="nothing-is-published-after-an-error",
        breaks="what a turn appended before it failed waits for the next message",
        at="append.py::Publishing.__exit__",
        old="self.is_due and not self.depth",
        new="self.is_due and not self.depth and error is None",
        tests=(
            "tests/broker/sending/test_own_writes.py"
            "::test_what_was_appended_before_an_error_is_published",
        ),
    ),
    Mutant(
        name="counted-before-it-is-safe",
        breaks="the audit misses messages that nobody was promised",
        at="acknowledged.py::AcknowledgedBatches.reached",
        old="pending and pending[0].end <= end",
        new="pending",
        tests=(
            "tests/broker/replication/test_roles_durability.py::test_a_batch_counts_when_it_is_acknowledged",
        ),
    ),
    Mutant(
        name="open-outcomes-count",
        breaks="the audit misses messages whose senders were told that their outcome is open",
        at="durability.py::Durability.end",
        old="self._batches.give_up()",
        new="",
        tests=(
            "tests/broker/replication/test_roles_durability.py"
            "::test_who_waits_when_the_term_ends_is_told_that_the_outcome_is_open",
        ),
    ),
    Mutant(
        name="final-refusal-sent-again",
        breaks="a message that no broker will take keeps its sender waiting until the deadline",
        at="retries.py::retry_of",
        old="_RETRIES.get(type(error))",
        new="_RETRIES.get(type(error), _BROKEN)",
        tests=(
            "tests/producer_client/test_choices.py"
            "::test_every_error_is_final_or_retried_for_a_reason",
        ),
    ),
    Mutant(
        name="unknown-taken-for-refused",
        breaks="a message that may be stored is stored again under another number",
        at="retries.py::leaves_unknown",
        old="type(error) in _UNKNOWN",
        new="type(error) in ()",
        tests=(
            "tests/producer_client/test_outcomes.py"
            "::test_what_may_be_stored_is_never_called_refused",
        ),
    ),
    Mutant(
        name="sent-after-its-deadline",
        breaks="a message is stored after its sender was told that it is not",
        at="retries.py::Retries._try_again",
        old="batch.deadline_s <= now_s",
        new="batch.deadline_s <= 0.0",
        tests=(
            "tests/producer_client/test_retries.py"
            "::test_a_batch_whose_time_ends_in_its_pause_is_not_sent_again",
        ),
    ),
    # ------------------------------------------------------------------------------ scheduling
    Mutant(
        name="delayed-batch-known-by-its-queue",
        breaks="a delayed batch counts as sent twice, and is lost, because an ordinary one has its "
        "number",
        at="ingest.py::Ingest._accept_one",
        old="self._resent(batch, (checked.topic, queue_id), producer_id, sequence)",
        new="self._resent(batch, (topic, batch.queue_id), producer_id, sequence)",
        tests=(
            "tests/broker/sending/test_resent_batches.py"
            "::test_where_a_batch_waits_its_numbers_are_apart_from_those_of_its_queue",
        ),
    ),
    Mutant(
        name="past-times-do-not-wait",
        breaks="a delayed batch that comes again after its time is stored twice",
        at="delays.py::waiting_batch",
        old="delay.level or waits_if_past or delay.deliver_ms > now_ms",
        new="delay.level or delay.deliver_ms > now_ms",
        tests=(
            "tests/broker/sending/test_resent_batches.py"
            "::test_a_delayed_batch_that_comes_again_when_its_time_is_past_is_found_where_it_waits",
        ),
    ),
    Mutant(
        name="delayed-batches-numbered-by-queue",
        breaks="delayed messages to two topics have one number where they wait: one is lost",
        at="accumulator.py::Batch.numbered_in",
        old="self.level is None",
        new="True",
        tests=(
            "tests/producer_client/test_delayed.py"
            "::test_two_topics_lose_nothing_where_their_messages_wait_together",
        ),
    ),
    # ------------------------------------------------------------------------------ pulling
    Mutant(
        name="broker-stands-still-without-credit",
        breaks="a queue whose credit was used up exactly is never read again",
        at="pull_session.py::PullSession.grant",
        old="was_without = handle.credit <= 0",
        new="was_without = handle.credit < 0",
        tests=(
            "tests/broker/reading/test_pull_session.py"
            "::test_whatever_happens_no_handle_is_left_where_nobody_takes_it",
        ),
    ),
    Mutant(
        name="client-waits-for-a-quarter",
        breaks="fetching stops while slow listeners keep three quarters of the room",
        at="flow_control.py::CreditWindow.grant",
        old="(self._in_flight_bytes > 0 and grant * 4 < whole)",
        new="grant * 4 < whole",
        tests=(
            "tests/consumer_client/test_flow_control.py"
            "::test_little_room_is_enough_while_the_broker_has_no_credit_left",
        ),
    ),
    Mutant(
        name="tags-by-hash-alone",
        breaks="a listener gets messages of another tag with the same hash",
        at="received_batch.py::decode_entries",
        old="[entry for entry in entries if entry[2].tag in tags]",
        new="entries",
        tests=("tests/consumer_client/test_received_batch.py::test_tags_are_compared_as_text",),
    ),
    Mutant(
        name="commits-past-running-listeners",
        breaks="a message is lost whose listener was still at work when the process died",
        at="process_queue.py::ProcessQueue.safe_offset",
        old="next(iter(self._running))",
        new="self.waiting[0][0] if self.waiting else self.fetched_end",
        tests=(
            "tests/consumer_client/test_process_queue.py"
            "::test_the_safe_offset_waits_for_the_slowest_message",
        ),
    ),
    # ------------------------------------------------------------------------------ sharing
    Mutant(
        name="share-without-its-last-queue",
        breaks="queues have no owner when they cannot be shared evenly",
        at="strategies.py::Averagely.allocate",
        old="start + share + (index < longer)",
        new="start + share",
        tests=("tests/consumer_client/test_rebalance.py::test_every_queue_has_exactly_one_owner",),
    ),
    Mutant(
        name="shares-overlap",
        breaks="two members ask for the same queue, and another one has no owner",
        at="strategies.py::Averagely.allocate",
        old="start = index * share + min(index, longer)",
        new="start = index * share + min(max(index - 1, 0), longer)",
        tests=("tests/consumer_client/test_rebalance.py::test_every_queue_has_exactly_one_owner",),
    ),
    Mutant(
        name="lost-broker-believed",
        breaks="queues of a member that left have no owner while one broker is down",
        at="rebalancer.py::Rebalancer._members_of",
        old="session is not None and session.is_joined and view is not None",
        new="session is not None and view is not None",
        tests=(
            "tests/consumer_client/test_group.py"
            "::test_the_members_that_a_lost_broker_named_last_are_not_believed",
        ),
    ),
    Mutant(
        name="member-believes-from-the-answer",
        breaks="a member works on while the broker gives its queues to another",
        at="lease_table.py::LeaseTable.on_heartbeat_ack",
        old="self._renew(sent_s)",
        new="self._renew(max([sent_s, *self._sent_at_s.values()]))",
        tests=(
            "tests/consumer_client/test_lease_table.py"
            "::test_the_deadline_counts_from_the_sending_of_the_acknowledged_heartbeat",
        ),
    ),
    Mutant(
        name="sigterm-only-with-ctrl-c",
        breaks="a consumer that a script started with `&` dies at once of SIGTERM",
        at="ending_signals.py::stopped_by_signals",
        old="if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:\n    taken",
        new="if taken and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:\n    taken",
        tests=(
            "tests/consumer_client/test_interrupts.py"
            "::test_run_ends_in_order_where_a_script_started_it_in_the_background",
        ),
    ),
    Mutant(
        name="virtual-time-in-strides",
        breaks="a test in virtual time passes though its program would fail in real time",
        at="virtual_time.py::VirtualTime.move",
        old="self._now_s += timeout_s",
        new="self._now_s += max(timeout_s, 2.0)",
        tests=(
            "tests/testing/test_virtual_histories.py"
            "::test_an_hour_has_3600_ticks_of_a_second_and_costs_moments",
        ),
    ),
    Mutant(
        name="time-limit-from-the-buffer-on",
        breaks="a send with a timeout takes twice as long when the buffer is full",
        at="delivery.py::Delivery.join",
        old="deadline_s=end_s,",
        new="",
        tests=(
            "tests/producer_client/test_time_limits.py"
            "::test_a_full_buffer_and_a_frozen_broker_together_take_one_time_limit",
        ),
    ),
    Mutant(
        name="offsets-without-a-life",
        breaks="a broadcasting member skips what was sent to a topic that was made anew",
        at="local_offsets.py::LocalOffsets.of_topic",
        old="noted_ms is not None and deleted_at_ms > noted_ms",
        new="False",
        tests=(
            "tests/consumer_client/test_remade_topics.py"
            "::test_a_new_topic_that_is_already_longer_is_read_from_its_first_message",
        ),
    ),
    Mutant(
        name="beyond-the-end-to-the-end",
        breaks="a broadcasting member skips what came in place of a lost end of the log",
        at="consumption.py::Consumption._on_result",
        old="next_offset = result.min_offset",
        new="pass",
        tests=(
            "tests/consumer_client/test_remade_topics.py"
            "::test_a_member_beyond_the_end_of_a_cut_log_misses_nothing_and_says_so",
        ),
    ),
    Mutant(
        name="unanswered-failure-forgotten",
        breaks="in order, an attempt comes twice after a broker was silent for longer than a lease",
        at="sending_back.py::SendingBack.on_dropped",
        old="self._in_order",
        new="False",
        tests=(
            "tests/consumer_client/test_unanswered_failures.py"
            "::test_a_member_whose_lease_ran_out_at_a_frozen_broker_reports_the_failure_first",
        ),
    ),
    Mutant(
        name="failure-of-a-moving-queue-forgotten",
        breaks="in order, an attempt comes twice when it fails while its queue moves",
        at="failed_calls.py::FailedCalls._on_failure",
        old="and not (self._in_order and self._send_back is not None)",
        new="",
        tests=(
            "tests/consumer_client/test_unanswered_failures.py"
            "::test_a_queue_moves_to_another_member_once_its_failure_is_counted",
        ),
    ),
)
