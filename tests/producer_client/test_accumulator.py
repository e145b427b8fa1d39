"""Batches leave in order, due ones only, none twice and none never."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.accumulator import Accumulator, Batch
from tests.support.property_runs import examples

LINGER_MS = 10
SIZE_MAX = 100
QUEUES = [MessageQueue("t", "a", number) for number in range(3)]


def batch_at(queue: MessageQueue, now_s: float) -> Batch:
    return Batch(queue, opened_s=now_s, born_timestamp_ms=0, timeout_ms=3_000)


class AccumulatorMachine(RuleBasedStateMachine):
    """Any order of calls keeps each queue's messages in order."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1.0
        self.accumulator = Accumulator(linger_ms=LINGER_MS, batch_bytes_max=SIZE_MAX)
        self.added: dict[MessageQueue, list[bytes]] = {queue: [] for queue in QUEUES}
        self.taken: dict[MessageQueue, list[bytes]] = {queue: [] for queue in QUEUES}
        self.count = 0

    @rule(queue=st.sampled_from(QUEUES), size=st.integers(1, 60))
    def add(self, queue: MessageQueue, size: int) -> None:
        batch = self.accumulator.open_batch(queue)
        if batch is None or not batch.may_join(
            size=size, size_max=SIZE_MAX, timeout_ms=3_000, skip_wait=False
        ):
            batch = batch_at(queue, self.now_s)
            self.accumulator.open(batch)
        self.count += 1
        body = b"%d" % self.count
        batch.add(body, b"", 0, size, None)
        self.added[queue].append(body)

    @rule(queue=st.sampled_from(QUEUES), size=st.integers(1, 300))
    def append(self, queue: MessageQueue, size: int) -> None:
        batch = batch_at(queue, self.now_s)
        self.count += 1
        batch.bodies = [b"%d" % self.count]
        batch.size = size
        self.accumulator.append(batch)
        self.added[queue].append(batch.bodies[0])

    @rule(
        bytes_max=st.integers(1, 400), returned=st.booleans(), held=st.sets(st.sampled_from(QUEUES))
    )
    def take(self, bytes_max: int, returned: bool, held: set[MessageQueue]) -> None:
        due = [
            batch
            for batch in self.accumulator
            if self.accumulator.is_due(batch, self.now_s) and batch.queue not in held
        ]
        batches = self.accumulator.take(
            self.now_s, bytes_max=bytes_max, claim=lambda batch: batch.queue not in held
        )
        assert batches == due[: len(batches)]
        assert bool(batches) == bool(due)
        assert sum(batch.size for batch in batches[1:]) <= bytes_max
        assert all(batch.is_sealed for batch in batches)
        if returned:
            self.accumulator.put_back(batches)
            return
        for batch in batches:
            self.taken[batch.queue].extend(batch.bodies)

    @rule(elapsed_ms=st.integers(0, 2 * LINGER_MS))
    def wait(self, elapsed_ms: int) -> None:
        self.now_s += elapsed_ms / 1_000

    @rule()
    def flush(self) -> None:
        self.accumulator.flush()
        assert all(self.accumulator.is_due(batch, self.now_s) for batch in self.accumulator)

    @invariant()
    def nothing_is_lost_or_overtaken(self) -> None:
        for queue in QUEUES:
            waiting = [
                body for batch in self.accumulator if batch.queue == queue for body in batch.bodies
            ]
            assert self.taken[queue] + waiting == self.added[queue]

    @invariant()
    def something_is_due_when_it_says_so(self) -> None:
        due_s = self.accumulator.next_due_s(self.now_s)
        waiting = [b for b in self.accumulator if not self.accumulator.is_due(b, self.now_s)]
        assert (due_s is None) == (not waiting)
        if due_s is not None:
            assert due_s > self.now_s - 1e-6
            assert not any(self.accumulator.is_due(batch, due_s - 1e-6) for batch in waiting)
            assert any(self.accumulator.is_due(batch, due_s + 1e-6) for batch in waiting)

    def teardown(self) -> None:
        for batch in self.accumulator.drain():
            self.taken[batch.queue].extend(batch.bodies)
        assert self.taken == self.added
        assert not self.accumulator


TestAccumulator = AccumulatorMachine.TestCase
TestAccumulator.settings = settings(max_examples=examples(30), stateful_step_count=40)


@given(st.lists(st.sampled_from(QUEUES)), st.data())
def test_a_removed_batch_is_gone_and_the_others_stay(
    queues: list[MessageQueue], data: st.DataObject
) -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes_max=SIZE_MAX)
    batches = [batch_at(queue, 1.0) for queue in queues]
    for batch in batches:
        accumulator.open(batch)
    removed = data.draw(st.lists(st.sampled_from(batches), unique=True) if batches else st.just([]))
    for batch in removed:
        assert accumulator.remove(batch)
        assert not accumulator.remove(batch)
        assert batch.is_sealed
        assert accumulator.open_batch(batch.queue) is not batch
    assert list(accumulator) == [batch for batch in batches if batch not in removed]


def test_a_message_joins_only_batches_that_want_the_same() -> None:
    batch = batch_at(QUEUES[0], 1.0)
    batch.add(b"1", b"", 0, 40, None)
    fits = {"size": 60, "size_max": 100, "timeout_ms": 3_000, "skip_wait": False}
    assert batch.may_join(**fits)  # type: ignore[arg-type]
    for change in ({"size": 61}, {"timeout_ms": 1}, {"skip_wait": True}):
        assert not batch.may_join(**(fits | change))  # type: ignore[arg-type]
    batch.is_sealed = True
    assert not batch.may_join(**fits)  # type: ignore[arg-type]
