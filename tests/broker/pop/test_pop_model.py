"""One queue against a plain model: a dict of messages, each with what may happen to it."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.pop.journal_state import apply_entries
from aerobee.broker.pop.requests import Delivery, Handled
from aerobee.broker.pop.standing import Standing
from tests.support.popped_queue import KEY, PoppedQueue
from tests.support.property_runs import examples


@dataclass
class Message:
    """As a client would note it."""

    group: str
    is_done: bool = False
    attempts: int = 0
    serial: int = -1
    visible_ms: int = 0
    is_counted: bool = True

    def uncount(self) -> None:
        self.attempts -= self.is_counted
        self.is_counted = False


class QueueMachine(RuleBasedStateMachine):
    @initialize(is_ordered=st.booleans(), has_topics=st.booleans())
    def begin(self, is_ordered: bool, has_topics: bool) -> None:
        """With topics it is a retry topic's queue, where no order counts: the letter is then where
        a message came from."""
        self.is_ordered = is_ordered and not has_topics
        self.has_topics = has_topics
        is_ordered = self.is_ordered
        self.queue = PoppedQueue(is_ordered=is_ordered)
        self.model: list[Message] = []
        self.handles: list[Delivery] = []

    @rule(groups=st.lists(st.sampled_from("abc"), min_size=1, max_size=6))
    def send(self, groups: list[str]) -> None:
        self.model += [Message(group) for group in groups]
        mark = "/" if self.has_topics else ":"
        self.queue.messages += [f"{group}{mark}" for group in groups]

    @rule(ms=st.integers(1, 400))
    def wait(self, ms: int) -> None:
        self.queue.now_ms += ms

    @rule()
    def fail_over(self) -> None:
        self.queue.fail_over()

    @rule(count=st.integers(1, 9), invisible_ms=st.integers(1, 300), topic=st.sampled_from("abc"))
    def receive(self, count: int, invisible_ms: int, topic: str) -> None:
        topic = topic if self.has_topics else ""
        deliveries = self.queue.receive(count, invisible_ms=invisible_ms, topic=topic)
        expected = [at for at in self.deliverable() if topic in ("", self.model[at].group)]
        assert {each.offset for each in deliveries} <= set(expected)
        assert len(deliveries) == min(count, len(expected))
        for offset, serial, attempt, visible_ms in deliveries:
            message = self.model[offset]
            assert attempt == message.attempts + 1
            assert serial > message.serial
            assert visible_ms == self.queue.now_ms + invisible_ms
            message.attempts, message.serial, message.visible_ms = attempt, serial, visible_ms
            message.is_counted = True
        self.handles += deliveries

    def deliverable(self) -> list[int]:
        """Unfinished, visible, and the first of its group where order counts."""
        found, seen = [], set()
        for offset, message in enumerate(self.model):
            is_first = not self.is_ordered or message.group not in seen
            if not message.is_done:
                seen.add(message.group)
                if is_first and message.visible_ms <= self.queue.now_ms:
                    found.append(offset)
        return found

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        picked = data.draw(st.lists(st.sampled_from(self.handles), min_size=1, max_size=4))
        before = [self.model[each.offset].is_done for each in picked]
        for each, was_done, handled in zip(
            picked, before, self.queue.acknowledge(*picked), strict=True
        ):
            message = self.model[each.offset]
            is_current = message.serial == each.serial
            expected = Handled.DONE if is_current else Handled.STALE
            assert handled is (Handled.FINISHED if was_done else expected)
            message.is_done |= is_current

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), ms=st.integers(0, 300), is_counted=st.booleans())
    def change(self, data: st.DataObject, ms: int, is_counted: bool) -> None:
        delivery = data.draw(st.sampled_from(self.handles))
        message = self.model[delivery.offset]
        if message.is_done or message.serial != delivery.serial:
            changed = self.queue.state.change(*delivery[:2], ms, self.queue.now_ms)
            assert changed.handled is not Handled.DONE
            return
        newer = self.queue.change(delivery, ms, is_counted=is_counted)
        message.serial, message.visible_ms = newer.serial, newer.visible_ms
        if not is_counted:
            message.uncount()
        self.handles.append(newer)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        delivery = data.draw(st.sampled_from(self.handles))
        message = self.model[delivery.offset]
        self.queue.add(self.queue.state.give_back([delivery[:2]], self.queue.now_ms))
        if not message.is_done and message.serial == delivery.serial:
            message.serial = self.queue.state.standing.flights[delivery.offset].serial
            message.visible_ms = self.queue.now_ms
            message.uncount()

    @invariant()
    def oldest_unfinished_is_committed(self) -> None:
        unfinished = [at for at, each in enumerate(self.model) if not each.is_done]
        state = self.queue.state
        assert state.committed == min(unfinished, default=len(self.model))
        assert state.unfinished(len(self.model)) == len(unfinished)

    @invariant()
    def journal_says_the_same(self) -> None:
        queues: dict[GroupQueue, Standing] = {}
        apply_entries(queues, self.queue.entries)
        told, standing = queues[KEY], self.queue.state.standing
        assert (told.committed, list(told.finished)) == (
            standing.committed,
            list(standing.finished),
        )
        assert told.flights == standing.flights


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
