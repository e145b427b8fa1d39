"""A group's retry topic has messages of all its topics: each goes to a poll for its own."""

from __future__ import annotations

from aerobee.broker.pop.requests import Handled, MoveReason, PopLimits
from tests.support.popped_queue import HELD_MS, PoppedQueue


def test_a_poll_gets_what_came_from_its_topic_and_leaves_the_rest_to_others() -> None:
    queue = PoppedQueue("a/1", "b/1", "a/2", "b/2")
    assert queue.offsets(topic="a") == [0, 2]
    assert queue.offsets(topic="a") == []
    assert queue.offsets(topic="b") == [1, 3]
    assert queue.offsets(topic="b") == []


def test_what_waits_for_another_topic_is_not_finished_by_anybody() -> None:
    queue = PoppedQueue("b/1", "a/1")
    queue.acknowledge(*queue.receive(topic="a"))
    assert (queue.state.committed, queue.state.unfinished(2), queue.state.in_flight) == (0, 1, 0)
    queue.fail_over()
    assert queue.offsets(topic="a") == []
    (delivery,) = queue.receive(topic="b")
    assert (delivery.offset, delivery.attempt) == (0, 1)
    assert queue.acknowledge(delivery) == [Handled.DONE]
    assert queue.state.committed == 2


def test_what_comes_again_comes_to_its_own_topic() -> None:
    queue = PoppedQueue("a/1", "b/1")
    queue.receive(topic="a", invisible_ms=10_000)
    queue.receive(topic="b", client_id="bob", invisible_ms=None)
    queue.silent.add("bob")
    queue.state.client_gone("bob", queue.now_ms)
    queue.now_ms += HELD_MS
    for _ in range(2):
        assert queue.offsets(topic="c") == []
        queue.fail_over()  # the next master has to read whose they are
    assert [(each.offset, each.attempt) for each in queue.receive(topic="b")] == [(1, 2)]
    assert [(each.offset, each.attempt) for each in queue.receive(topic="a")] == [(0, 2)]


def test_tags_are_for_the_messages_of_the_poll_s_own_topic() -> None:
    queue = PoppedQueue("a/wanted", "a/not", "b/not")
    queue.wanted = {"a/wanted"}
    assert queue.offsets(topic="a") == [0]
    queue.wanted = None
    assert queue.offsets(topic="b") == [2]
    assert queue.state.unfinished(3) == 2


def test_a_message_that_does_not_tell_its_topic_goes_to_any_poll() -> None:
    queue = PoppedQueue("nothing told", "b/1")
    assert queue.offsets(topic="a") == [0]


def test_a_poll_for_everything_gets_everything() -> None:
    queue = PoppedQueue("a/1", "b/1", "a/2")
    assert queue.offsets(topic="a") == [0, 2]
    assert queue.offsets() == [1]


def test_attempts_before_a_message_came_here_count() -> None:
    queue = PoppedQueue("a/1")
    queue.failures = {0: 3}
    assert [each.attempt for each in queue.receive(topic="a", attempts_max=5)] == [4]
    queue.now_ms += 30_000
    queue.fail_over()
    assert [each.attempt for each in queue.receive(topic="a", attempts_max=5)] == [5]
    queue.now_ms += 30_000
    assert queue.offsets(topic="a", attempts_max=5) == []
    assert [(each.reason, each.attempts) for each in queue.moves] == [(MoveReason.DEAD, 5)]


def test_what_nobody_asks_for_takes_bounded_room() -> None:
    queue = PoppedQueue(*["b/"] * 5, "a/1", limits=PopLimits(aside_max=3))
    assert queue.offsets(topic="a") == []
    assert queue.offsets(2, topic="b") == [0, 1]
    assert queue.offsets(topic="a") == [5]
    assert queue.offsets(topic="b") == [2, 3, 4]
