"""Errors in what listeners answer, in order by key, in messages one by one, below frameworks."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_TESTS = "tests/consumer_client"
_ANSWERS = f"{_TESTS}/test_answers.py"
_KEYED = f"{_TESTS}/test_keyed_queue.py"
_SIMPLE = f"{_TESTS}/test_simple_consumer.py"

CONSUMING: Final = (
    # ------------------------------------------------------------------------------ answers
    Mutant(
        name="rejected-is-tried-again",
        breaks="a message that can never be handled is tried for hours, and holds up its queue",
        at="failed_calls.py::FailedCalls._on_failure",
        old="if isinstance(error, Reject):\n    self._on_rejected",
        new="if error is self:\n    self._on_rejected",
        tests=(f"{_ANSWERS}::test_a_rejected_message_is_a_dead_letter_at_once",),
    ),
    Mutant(
        name="own-wait-ignored",
        breaks="a message comes again at once, though its listener asked for five minutes",
        at="failed_calls.py::FailedCalls._on_failure",
        old="error.after_ms if isinstance(error, RetryLater) else None",
        new="None",
        tests=(f"{_ANSWERS}::test_a_message_comes_again_when_its_listener_says",),
    ),
    Mutant(
        name="answers-of-a-batch-unread",
        breaks="a message that was rejected in a batch counts as handled, and is lost",
        at="listener_pool.py::ListenerPool._on_done",
        old="isinstance(messages, Batch) and messages.answers",
        new="isinstance(messages, Batch) and False",
        tests=(f"{_ANSWERS}::test_messages_of_a_batch_have_answers_of_their_own",),
    ),
    Mutant(
        name="later-ones-overtake-in-a-batch",
        breaks="in order, messages after one that comes again are not handled after it",
        at="calls.py::apart",
        old="later is not None or (answer is not None and not is_failed)",
        new="answer is not None and not is_failed",
        tests=(f"{_ANSWERS}::test_messages_of_a_batch_have_answers_of_their_own",),
    ),
    # ------------------------------------------------------------------------------ by key
    Mutant(
        name="every-message-a-lane",
        breaks="two messages of one customer are handled at the same time",
        at="keyed_queue.py::KeyedQueue._line_up",
        old="self._key_of(entry[2])",
        new="None",
        tests=(f"{_TESTS}/test_keys_in_order.py::test_each_key_stays_in_order_whatever_fails",),
    ),
    Mutant(
        name="keyed-offset-by-what-waits",
        breaks="a message that is still being handled is committed, and lost if its member dies",
        at="keyed_queue.py::KeyedQueue.safe_offset",
        old="self._held[0] if self._held else self.fetched_end",
        new="self.waiting[0][0] if self.waiting else self.fetched_end",
        tests=(f"{_KEYED}::TestKeyedQueue",),
    ),
    Mutant(
        name="lane-ends-with-its-first",
        breaks="the second message of a customer is never handled",
        at="keyed_queue.py::KeyedQueue._go_on",
        old="if lane:",
        new="if len(lane) > 1:",
        tests=(f"{_TESTS}/test_keys_in_order.py::test_a_key_that_fails_holds_up_only_itself",),
    ),
    # ------------------------------------------------------------------------------ one by one
    Mutant(
        name="kept-by-the-time-of-the-consumer",
        breaks="a message that was received for a shorter time comes again while it is kept",
        at="popped_message.py::PoppedMessage.renew_s",
        old="self.since_s + self.invisible_ms / 3_000",
        new="self.since_s + 10.0",
        tests=(f"{_SIMPLE}::test_a_message_is_kept_by_the_time_it_was_received_with",),
    ),
    Mutant(
        name="locks-as-they-come",
        breaks="two calls about the same messages wait for each other without end",
        at="simple_consumer.py::SimpleConsumer._quiet",
        old="sorted(locks.items())",
        new="locks.items()",
        tests=(f"{_SIMPLE}::test_calls_about_the_same_messages_in_any_order_all_end",),
    ),
    Mutant(
        name="waits-at-the-first-broker",
        breaks="a message waits at one broker while its consumer waits at another",
        at="simple_consumer.py::SimpleConsumer._receive_once",
        old="wait_ms if len(sources) == 1 else 0",
        new="wait_ms",
        tests=(
            f"{_SIMPLE}"
            "::test_all_brokers_are_polled_and_the_first_one_with_a_message_ends_the_wait",
        ),
    ),
    # ------------------------------------------------------------------------------ frameworks
    Mutant(
        name="task-asks-in-vain",
        breaks="a task of taskiq that asked to come again counts as done",
        at="taskiq.py::_Answers.on_error",
        old="_outcome.set(answer)",
        new="pass",
        tests=(
            "tests/integrations/test_taskiq.py"
            "::test_a_task_that_asks_for_it_comes_again_and_has_one_result",
        ),
    ),
    Mutant(
        name="long-task-is-not-kept",
        breaks="a task of taskiq that takes longer than a minute runs at several workers",
        at="taskiq.py::_InHand.keep",
        old="await self._keeping.__aenter__()",
        new="self._keeping.__aenter__().close()",
        tests=("tests/integrations/test_taskiq.py::test_a_long_task_stays_with_its_worker",),
    ),
    Mutant(
        name="last-answer-counts",
        breaks="FastStream's own acknowledgement replaces what a handler has said",
        at="faststream/message.py::Delivery.settle",
        old="if not self.is_settled:",
        new="if self.message:",
        tests=(
            "tests/integrations/test_faststream.py::test_a_message_is_acknowledged_by_hand",
            "tests/integrations/test_faststream.py"
            "::test_the_policy_says_what_becomes_of_a_failed_message",
        ),
    ),
)
