"""The keyed queue against a naive model."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aerobee.consumer_client.keyed_queue import KeyedQueue
from aerobee.consumer_client.process_queue import Entry

KEYS = st.sampled_from(["a", "b", "c", ""])
"""The empty one stands for no key."""


def key_of(message: str) -> str | None:
    return message[0] if message[0] != "-" else None


class KeyedQueueMachine(RuleBasedStateMachine):
    """The model remembers everything and searches it."""

    @initialize(start=st.integers(0, 50))
    def begin(self, start: int) -> None:
        self.queue: KeyedQueue[str] = KeyedQueue(start, key_of)
        self.end = start
        self.unfinished: dict[int, str] = {}
        self.running: dict[int, Entry[str]] = {}
        self.duplicates = 0

    def lane(self, offset: int) -> object:
        return key_of(self.unfinished[offset]) or offset

    def is_free(self, offset: int) -> bool:
        """Whether nothing of its key is unfinished before it, or running."""
        lane = self.lane(offset)
        return offset not in self.running and not any(
            self.lane(other) == lane and (other < offset or other in self.running)
            for other in self.unfinished
            if other != offset
        )

    @rule(back=st.integers(0, 9), gaps=st.lists(st.tuples(st.integers(0, 2), KEYS), max_size=12))
    def add(self, back: int, gaps: list[tuple[int, str]]) -> None:
        """A frame that may overlap what came before and may have holes."""
        offset = max(0, self.end - back)
        entries: list[Entry[str]] = []
        for gap, key in gaps:
            offset += gap
            entries.append((offset, 10 + offset, f"{key or '-'}{offset}"))
            offset += 1
        fresh = {entry[0]: entry[2] for entry in entries if entry[0] >= self.end}
        self.duplicates += len(entries) - len(fresh)
        assert self.queue.add(entries, offset) == len(entries) - len(fresh)
        self.end = max(self.end, offset)
        self.unfinished |= fresh

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        taken = self.queue.take(count)
        if not taken:
            assert not any(self.is_free(offset) for offset in self.unfinished)
            return
        first = taken[0][0]
        assert self.is_free(first)
        of_key = sorted(each for each in self.unfinished if self.lane(each) == self.lane(first))
        assert [entry[0] for entry in taken] == of_key[:count]
        assert [entry[2] for entry in taken] == [self.unfinished[each] for each in of_key[:count]]
        self.running |= {entry[0]: entry for entry in taken}

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.running)), min_size=1))
        order = data.draw(st.permutations(sorted(chosen)))
        self.queue.finish([self.running.pop(offset) for offset in order])
        for offset in chosen:
            del self.unfinished[offset]

    @invariant()
    def agrees(self) -> None:
        queue = self.queue
        assert queue.fetched_end == self.end
        assert queue.safe_offset == min(self.unfinished, default=self.end)
        assert queue.cached_count == len(self.unfinished)
        assert queue.cached_bytes == sum(10 + offset for offset in self.unfinished)
        assert {entry[0] for entry in queue.waiting} == {
            offset for offset in self.unfinished if self.is_free(offset)
        }
        assert queue.running_count == len(self.running)
        assert queue.duplicates_total == self.duplicates
        assert queue.lane_count == len({self.lane(offset) for offset in self.unfinished})


TestKeyedQueue = KeyedQueueMachine.TestCase


def test_what_is_finished_is_forgotten_once_all_before_it_is() -> None:
    queue: KeyedQueue[str] = KeyedQueue(0, key_of)
    queue.add([(offset, 1, f"{'a' if offset else 'b'}{offset}") for offset in range(1_000)], 1_000)
    (slow,) = queue.take(1)
    for _ in range(999):
        queue.finish(queue.take(1))
    assert (queue.safe_offset, queue.cached_count, queue.span) == (0, 1, 999)
    queue.finish([slow])
    assert (queue.safe_offset, queue.cached_count, queue.lane_count) == (1_000, 0, 0)
    assert not queue._held
    assert not queue._finished
