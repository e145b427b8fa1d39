"""What POP promises of one queue of a group: each test is a sentence of the promise."""

from __future__ import annotations

import pytest

from aerobee.broker.pop.requests import Handled, MoveReason, Poll, PopLimits, Read
from aerobee.runtime.errors import Busy
from aerobee.store.engine.tables.finished_ranges import Range
from tests.support.popped_queue import HELD_MS, PoppedQueue


def test_a_message_is_invisible_until_its_time_and_comes_again_then() -> None:
    queue = PoppedQueue("a", "b")
    assert queue.offsets(invisible_ms=30_000) == [0, 1]
    queue.now_ms += 29_999
    assert queue.offsets() == []
    assert queue.state.wake_ms() == queue.now_ms + 1
    queue.now_ms += 1
    assert [(each.offset, each.attempt) for each in queue.receive()] == [(0, 2), (1, 2)]


def test_a_queue_whose_messages_are_all_with_somebody_has_nothing_until_one_comes_again() -> None:
    queue = PoppedQueue("a", "b")
    assert not queue.state.has_nothing(2, queue.now_ms)
    queue.receive(invisible_ms=30_000)
    assert queue.state.has_nothing(2, queue.now_ms)
    assert not queue.state.has_nothing(3, queue.now_ms), "a message has come"
    assert not queue.state.has_nothing(2, queue.now_ms + 30_000)


def test_what_was_acknowledged_does_not_come_again() -> None:
    queue = PoppedQueue("a", "b", "c")
    first, second, _ = queue.receive()
    assert queue.acknowledge(second) == [Handled.DONE]
    queue.now_ms += 30_000
    queue.fail_over()
    assert queue.offsets() == [0, 2]
    assert queue.acknowledge(second) == [Handled.FINISHED]
    assert queue.acknowledge(first) == [Handled.STALE]


def test_the_committed_offset_is_the_oldest_unfinished_message() -> None:
    queue = PoppedQueue("a", "b", "c", "d")
    first, second, third, _ = queue.receive()
    queue.acknowledge(second, third)
    assert (queue.state.committed, queue.state.unfinished(4)) == (0, 2)
    queue.acknowledge(first)
    assert (queue.state.committed, queue.state.unfinished(4), queue.state.in_flight) == (3, 1, 1)


def test_attempts_rise_over_fail_overs_and_serials_do_not_repeat() -> None:
    queue = PoppedQueue("a")
    serials = []
    for attempt in range(1, 5):
        (delivery,) = queue.receive(invisible_ms=10_000)
        assert delivery.attempt == attempt
        serials.append(delivery.serial)
        queue.now_ms += 10_000
        queue.fail_over()
    assert serials == sorted(set(serials))


def test_a_handle_is_good_until_its_message_is_delivered_again() -> None:
    queue = PoppedQueue("a")
    (first,) = queue.receive(invisible_ms=10_000)
    queue.now_ms += 10_000
    (second,) = queue.receive()
    assert queue.acknowledge(first) == [Handled.STALE]
    assert queue.state.change(0, first.serial, 0, queue.now_ms).handled is Handled.STALE
    assert queue.state.forward(0, first.serial)[0] is Handled.STALE
    assert queue.acknowledge(second, second) == [Handled.DONE, Handled.DONE]


def test_a_late_acknowledgement_counts_while_nobody_else_has_the_message() -> None:
    queue = PoppedQueue("a")
    (delivery,) = queue.receive(invisible_ms=10_000)
    queue.now_ms += 20_000
    assert queue.acknowledge(delivery) == [Handled.DONE]
    assert queue.offsets() == []


def test_a_changed_time_gives_a_new_handle_and_voids_the_old_one() -> None:
    queue = PoppedQueue("a")
    (first,) = queue.receive()
    changed = queue.change(first, 5_000)
    assert queue.acknowledge(first) == [Handled.STALE]
    queue.now_ms += 5_000
    (second,) = queue.receive()
    assert second.attempt == 2
    # As Apache's own test has it: of both, the one that is newer.
    assert queue.acknowledge(changed, second) == [Handled.STALE, Handled.DONE]


def test_a_delivery_that_does_not_count_leaves_the_attempts_as_they_were() -> None:
    queue = PoppedQueue("a")
    (first,) = queue.receive()
    queue.change(first, 0, is_counted=False)
    assert [each.attempt for each in queue.receive()] == [1]


def test_what_its_receiver_did_not_get_comes_again_at_once_and_does_not_count() -> None:
    queue = PoppedQueue("a", "b")
    deliveries = queue.receive()
    queue.add(queue.state.give_back([each[:2] for each in deliveries], queue.now_ms))
    queue.fail_over()
    assert [(each.offset, each.attempt) for each in queue.receive()] == [(0, 1), (1, 1)]
    assert queue.acknowledge(*deliveries) == [Handled.STALE, Handled.STALE]


def test_a_client_that_said_no_time_keeps_its_messages_while_it_is_heard_of() -> None:
    queue = PoppedQueue("a")
    (delivery,) = queue.receive(invisible_ms=None)
    for _ in range(5):
        queue.now_ms += HELD_MS
        assert queue.offsets() == []
    queue.fail_over()
    assert queue.offsets() == []
    assert queue.acknowledge(delivery) == [Handled.DONE]


def test_messages_of_a_client_that_is_gone_come_again() -> None:
    queue = PoppedQueue("a", "b")
    queue.offsets(1, client_id="ada", invisible_ms=None)
    queue.offsets(1, client_id="bob", invisible_ms=None)
    queue.silent.add("bob")
    queue.state.client_gone("bob", queue.now_ms)
    assert queue.offsets(client_id="cy") == [1]


def test_a_message_that_was_delivered_as_often_as_it_may_be_moves_to_the_dead_letters() -> None:
    queue = PoppedQueue("a", "b")
    for _ in range(2):
        assert queue.offsets(1, attempts_max=2, invisible_ms=10_000) == [0]
        queue.now_ms += 10_000
    assert queue.offsets(1, attempts_max=2) == [1]
    (move,) = queue.moves
    assert (move.offset, move.reason, move.attempts) == (0, MoveReason.DEAD, 2)
    assert queue.offsets() == []
    queue.add(queue.state.moved(0, queue.now_ms))
    assert queue.state.committed == 1


def test_a_message_that_had_its_last_delivery_while_a_poll_read_is_not_delivered_once_more() -> (
    None
):
    queue = PoppedQueue("a")
    queue.receive(invisible_ms=10_000)
    queue.now_ms += 10_000
    slow = Poll("bob", 1, 10_000, attempts_max=2)
    wanted = queue.state.wants(slow, queue.now_ms)
    assert (wanted.again, wanted.moves) == ([0], [])
    assert queue.offsets(invisible_ms=10_000, attempts_max=2) == [0]
    queue.now_ms += 10_000
    taken = queue.state.take(slow, Read({0: 0}, wanted.again, 1, 1), queue.now_ms)
    assert (taken.deliveries, taken.entries) == ([], [])
    (move,) = queue.state.wants(slow, queue.now_ms).moves
    assert move == (0, MoveReason.DEAD, 2)


def test_a_dead_letter_that_could_not_be_written_is_tried_again() -> None:
    queue = PoppedQueue("a")
    queue.offsets(attempts_max=1, invisible_ms=10_000)
    queue.now_ms += 10_000
    assert queue.offsets(attempts_max=1) == []
    queue.state.kept(0, queue.now_ms)
    assert queue.offsets(attempts_max=1) == []
    assert [move.reason for move in queue.moves] == [MoveReason.DEAD, MoveReason.DEAD]


def test_a_message_that_is_forwarded_is_moved_once() -> None:
    queue = PoppedQueue("a")
    (delivery,) = queue.receive()
    handled, move = queue.state.forward(0, delivery.serial)
    assert handled is Handled.DONE
    assert move is not None
    assert move.reason is MoveReason.FORWARDED
    assert queue.state.forward(0, delivery.serial) == (Handled.DONE, None)
    assert queue.acknowledge(delivery) == [Handled.STALE]
    queue.add(queue.state.moved(0, queue.now_ms))
    assert queue.state.forward(0, delivery.serial) == (Handled.FINISHED, None)


def test_messages_that_do_not_pass_the_filter_are_finished() -> None:
    queue = PoppedQueue("tea", "milk", "tea", "milk")
    queue.wanted = {"milk"}
    assert queue.offsets() == [1, 3]
    assert queue.state.committed == 1
    queue.fail_over()
    queue.wanted = None
    assert queue.offsets() == []


def test_a_message_that_comes_again_may_not_pass_another_filter() -> None:
    queue = PoppedQueue("tea", "milk")
    queue.offsets(invisible_ms=10_000)
    queue.now_ms += 10_000
    queue.wanted = {"milk"}
    assert queue.offsets() == [1]
    assert queue.state.committed == 1


def test_messages_of_one_group_come_one_after_the_other_and_others_go_on() -> None:
    queue = PoppedQueue("a:1", "a:2", "b:1", "a:3", "b:2", is_ordered=True)
    first, other = queue.receive()
    assert (first.offset, other.offset) == (0, 2)
    assert queue.offsets() == []
    queue.acknowledge(first)
    assert queue.offsets() == [1]
    queue.acknowledge(other)
    assert queue.offsets() == [4]


def test_a_retry_holds_up_its_message_group_alone_also_after_a_fail_over() -> None:
    queue = PoppedQueue("a:1", "a:2", "b:1", is_ordered=True)
    first, _ = queue.receive()
    queue.change(first, 5_000)
    queue.fail_over()
    queue.messages.append("c:1")
    assert queue.offsets() == [3]
    queue.now_ms += 5_000
    (again,) = queue.receive()
    assert (again.offset, again.attempt) == (0, 2)
    queue.acknowledge(again)
    assert queue.offsets() == [1]


def test_the_next_of_a_group_follows_a_dead_letter() -> None:
    queue = PoppedQueue("a:1", "a:2", is_ordered=True)
    (delivery,) = queue.receive()
    queue.state.forward(0, delivery.serial)
    assert queue.offsets() == []
    queue.add(queue.state.moved(0, queue.now_ms))
    assert queue.offsets() == [1]


def test_a_poll_for_runs_gets_a_message_group_in_order_and_the_next_waits_for_all_of_it() -> None:
    queue = PoppedQueue("a:1", "a:2", "b:1", "a:3", is_ordered=True)
    run = queue.receive(3, takes_runs=True)
    assert [each.offset for each in run] == [0, 1, 2]
    assert queue.offsets(takes_runs=True) == []
    queue.acknowledge(run[0], run[2])
    assert queue.offsets(takes_runs=True) == []
    queue.acknowledge(run[1])
    assert queue.offsets(takes_runs=True) == [3]


def test_a_run_comes_again_from_its_first_unfinished_message_with_what_follows() -> None:
    queue = PoppedQueue("a:1", "a:2", "a:3", "b:1", is_ordered=True)
    run = queue.receive(3, invisible_ms=10_000, takes_runs=True)
    queue.acknowledge(run[0])
    queue.change(run[2], 30_000)
    queue.now_ms += 10_000
    queue.fail_over()
    again = queue.receive(takes_runs=True)
    assert [(each.offset, each.attempt) for each in again] == [(1, 2), (3, 1)]
    queue.now_ms += 30_000
    assert queue.offsets(takes_runs=True) == [1, 2, 3]


def test_a_poll_that_takes_no_runs_gets_one_message_of_a_run_that_comes_again() -> None:
    queue = PoppedQueue("a:1", "a:2", is_ordered=True)
    assert [each.offset for each in queue.receive(invisible_ms=10_000, takes_runs=True)] == [0, 1]
    queue.now_ms += 10_000
    (first,) = queue.receive()
    assert first.offset == 0
    queue.acknowledge(first)
    assert queue.offsets() == [1]


def test_messages_without_a_group_are_one_group_where_order_counts() -> None:
    queue = PoppedQueue(":1", ":2", is_ordered=True)
    assert queue.offsets() == [0]


def test_reading_ahead_of_message_groups_that_wait_is_bounded() -> None:
    limits = PopLimits(waiting_max=3)
    queue = PoppedQueue(*["a:1"] * 9, "b:1", is_ordered=True, limits=limits)
    assert queue.offsets() == [0]
    with pytest.raises(Busy, match="3 messages of queue 3 of topic orders wait for older ones"):
        queue.receive()


def test_messages_in_flight_are_bounded() -> None:
    queue = PoppedQueue(*"abcde", limits=PopLimits(flights_max=3))
    first, *_ = queue.receive()
    assert queue.state.in_flight == 3
    with pytest.raises(Busy, match="group billing has 3 messages of queue 3 of topic orders"):
        queue.receive()
    queue.acknowledge(first)
    assert queue.offsets() == [3]


def test_an_old_message_that_holds_too_much_goes_on_by_the_retry_topic() -> None:
    queue = PoppedQueue(*["m"] * 20, limits=PopLimits(span_max=10))
    _, *others = queue.receive(15, invisible_ms=10_000)
    queue.acknowledge(*others)
    queue.now_ms += 10_000
    assert 0 not in queue.offsets()
    assert [(move.offset, move.reason) for move in queue.moves] == [(0, MoveReason.LATE)]


def test_a_repeated_poll_gets_the_same_messages_under_the_same_handles() -> None:
    queue = PoppedQueue("a:1", "b:1", "c:1", is_ordered=True)
    first = queue.receive(2, attempt_id="once")
    assert queue.receive(2, attempt_id="once") == first
    queue.acknowledge(first[0])
    assert queue.receive(2, attempt_id="once") == first[1:]
    assert queue.offsets(attempt_id="twice") == [2]


def test_a_poll_may_not_be_repeated_for_ever() -> None:
    queue = PoppedQueue("a", limits=PopLimits(repeated_ms=1_000))
    queue.receive(attempt_id="once")
    queue.now_ms += 1_001
    assert queue.receive(attempt_id="once") == []


def test_what_the_log_has_lost_is_finished() -> None:
    queue = PoppedQueue("a:1", "a:2", "b:1", "c:1", is_ordered=True)
    queue.receive(1)
    queue.add(queue.state.settle([Range(0, 3)], queue.now_ms))
    assert queue.state.committed == 3
    assert queue.offsets() == [3]


def test_after_a_reset_no_handle_is_good() -> None:
    queue = PoppedQueue("a", "b")
    deliveries = queue.receive()
    queue.acknowledge(deliveries[1])
    queue.add(queue.state.begin_again(0, queue.now_ms))
    assert queue.acknowledge(*deliveries) == [Handled.STALE, Handled.STALE]
    again = queue.receive()
    assert [(each.offset, each.attempt) for each in again] == [(0, 1), (1, 1)]
    assert again[0].serial > deliveries[1].serial


def test_order_counts_from_now_on_for_a_group_in_whose_hands_messages_are() -> None:
    queue = PoppedQueue("a:1", "a:2", "b:1")
    queue.receive(2, invisible_ms=10_000)
    ordered = PoppedQueue(*queue.messages, is_ordered=True)
    ordered.entries = queue.entries
    ordered.fail_over()
    assert ordered.offsets() == []  # what was taken without order first
    ordered.now_ms += 10_000
    (first,) = ordered.receive()
    assert first.offset == 0
    ordered.acknowledge(first)
    (second,) = ordered.receive()
    assert second.offset == 1
    ordered.acknowledge(second)
    assert ordered.offsets() == [2]
