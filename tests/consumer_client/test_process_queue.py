"""The process queue against a naive model."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aerobee.consumer_client.process_queue import Entry, ProcessQueue


class ProcessQueueMachine(RuleBasedStateMachine):
    """The model remembers everything and searches it."""

    @initialize(start=st.integers(0, 50))
    def begin(self, start: int) -> None:
        self.queue: ProcessQueue[str] = ProcessQueue(start)
        self.end = start
        self.unfinished: set[int] = set()
        self.waiting: list[int] = []
        self.running: dict[int, Entry[str]] = {}
        self.seen: set[int] = set()
        self.duplicates = 0

    @rule(
        back=st.integers(0, 12),
        gaps=st.lists(st.integers(0, 3), max_size=12),
        tail=st.integers(0, 3),
    )
    def add(self, back: int, gaps: list[int], tail: int) -> None:
        """A frame that may overlap what came before and may have holes."""
        offset = max(0, self.end - back)
        entries: list[Entry[str]] = []
        for gap in gaps:
            offset += gap
            entries.append((offset, 10 + offset, f"m{offset}"))
            offset += 1
        fresh = [entry[0] for entry in entries if entry[0] >= self.end]
        duplicates = self.queue.add(entries, offset + tail)
        assert duplicates == len(entries) - len(fresh)
        self.duplicates += duplicates
        self.end = max(self.end, offset + tail)
        self.unfinished.update(fresh)
        self.waiting += fresh

    @rule(count=st.integers(1, 5))
    def take(self, count: int) -> None:
        taken = self.queue.take(count)
        expected, self.waiting = self.waiting[:count], self.waiting[count:]
        assert [entry[0] for entry in taken] == expected
        assert [entry[2] for entry in taken] == [f"m{offset}" for offset in expected]
        self.running.update((entry[0], entry) for entry in taken)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.running)), min_size=1))
        order = data.draw(st.permutations(sorted(chosen)))
        self.queue.finish([self.running.pop(offset) for offset in order])
        self.unfinished -= chosen

    @invariant()
    def agrees(self) -> None:
        queue = self.queue
        assert queue.fetched_end == self.end
        assert queue.safe_offset == min(self.unfinished, default=self.end)
        assert queue.cached_count == len(self.unfinished)
        assert queue.cached_bytes == sum(10 + offset for offset in self.unfinished)
        assert len(queue.waiting) == len(self.waiting)
        assert queue.running_count == len(self.running)
        assert queue.duplicates_total == self.duplicates


TestProcessQueue = ProcessQueueMachine.TestCase


def test_the_safe_offset_waits_for_the_slowest_message() -> None:
    queue: ProcessQueue[str] = ProcessQueue(5)
    queue.add([(offset, 1, "") for offset in range(5, 10)], 10)
    taken = queue.take(5)
    queue.finish([taken[1], taken[3], taken[4]])
    assert queue.safe_offset == 5
    assert queue.span == 4
    queue.finish([taken[0]])
    assert queue.safe_offset == 7
    queue.finish([taken[2]])
    assert queue.safe_offset == 10
    assert queue.span == 0


def test_messages_that_a_filter_left_out_do_not_hold_the_offset_back() -> None:
    queue: ProcessQueue[str] = ProcessQueue(0)
    queue.add([], 100)
    assert queue.safe_offset == 100
    queue.add([(150, 1, "")], 200)
    assert queue.safe_offset == 150
    queue.finish(queue.take(1))
    assert queue.safe_offset == 200


def test_a_frame_that_ends_behind_its_last_message_is_our_bug() -> None:
    queue: ProcessQueue[str] = ProcessQueue(0)
    with pytest.raises(AssertionError):
        queue.add([(3, 1, "")], 3)
