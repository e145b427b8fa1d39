"""The store against a list: appends, flushes, stops, kills and power failures in any order.

After a stop or a kill everything appended is there. After a power failure what is there is the
beginning of what was appended, at least up to the flushed end. Whatever happens, the store opens,
and its queues hold exactly the records of its log. While more queue entries wait for a checkpoint
than the configuration allows, and only then, an append is refused as BUSY and stores nothing.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import Busy
from aerobee.store.engine.config import ENTRY_BYTES, StoreConfig
from aerobee.store.engine.flush_ledger import BEHIND_FACTOR
from aerobee.store.engine.flush_work import FlushWork
from aerobee.store.engine.log.segment_supply import PrepareWork
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.topic_end import JOURNAL_TOPIC
from tests.support.fault_disk import FaultDisk
from tests.support.property_runs import examples
from tests.support.stores import (
    SMALL,
    batch_of,
    check_agreement,
    log_records,
    open_store,
    topic_end_batch,
)

CONFIGS = [
    SMALL,
    replace(SMALL, consume_queue_entries_per_file=3, queue_tail_bytes_max=100),
    replace(SMALL, recovery_chunk_bytes=150, recovery_tail_bytes_max=60, queue_tail_bytes_max=60),
    replace(SMALL, segment_bytes=1500, checkpoint_interval_ms=1),
    replace(SMALL, consume_queue_entries_per_file=3, queue_checks_at_start_max=0),
]


@dataclass(frozen=True)
class Sent:
    """One record as it was appended."""

    topic: str
    queue_id: int
    body: bytes
    queued: bool
    end: int
    ends_topic: str = ""


class StoreMachine(RuleBasedStateMachine):
    """Each rule is something that a broker, an operator or fate may do."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.generation = 0
        self.clock = ManualClock()
        self.sent: list[Sent] = []
        self.numbers = 0
        self.flush: FlushWork | None = None
        self.prepare: PrepareWork | None = None

    @initialize(config=st.sampled_from(CONFIGS))
    def start(self, config: StoreConfig) -> None:
        self.config = config
        self.root = self.folder / "0"
        self.root.mkdir()
        self.open()

    def open(self) -> None:
        self.flush = self.prepare = None
        # Queue entries that are seen, and how many of them are in files or on their way there.
        self.entries_seen = self.entries_in_files = self.entries_taken = 0
        self.has_ended_a_topic = False
        self.abandon()
        self.disk = FaultDisk(self.root)
        self.store: MessageStore = open_store(self.disk, self.config, self.clock)

    def abandon(self) -> None:
        """Of a process that is gone the kernel closes the files; a search opens very many."""
        if hasattr(self, "disk"):
            self.disk.abandon()

    def move_to_new_root(self) -> Path:
        self.generation += 1
        self.root = self.folder / str(self.generation)
        return self.root

    def teardown(self) -> None:
        self.abandon()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -------------------------------------------------------------------------- the broker

    @rule(
        topic=st.sampled_from(["Orders", "Payments"]),
        queue_id=st.integers(0, 2),
        sizes=st.lists(st.integers(0, 300), min_size=1, max_size=3),
        prepared=st.sampled_from([False, False, False, True]),
    )
    def append(self, topic: str, queue_id: int, sizes: list[int], prepared: bool) -> None:
        texts = []
        for size in sizes:
            self.numbers += 1
            texts.append((b"%d:" % self.numbers).ljust(size, b"x"))
        batch = batch_of(topic, *texts, tag="t", sys_flag=0x4 if prepared else 0)
        ends = [int(end) for end in (batch.starts + batch.sizes)]
        appended = self.append_unless_busy(batch, queue_id)
        if appended is None:
            return
        for text, end in zip(texts, ends, strict=True):
            at = appended.base_physical_offset + end
            self.sent.append(Sent(topic, queue_id, text, not prepared, at))

    @rule(topic=st.sampled_from(["Orders", "Payments"]))
    def end_a_topic(self, topic: str) -> None:
        appended = self.append_unless_busy(topic_end_batch(topic), 0, ends_topic=topic)
        if appended is not None:
            self.sent.append(Sent(JOURNAL_TOPIC, 0, b"body", True, appended.end, topic))
            self.has_ended_a_topic = True

    def append_unless_busy(
        self, batch: CheckedBatch, queue_id: int, ends_topic: str = ""
    ) -> Appended | None:
        """None: too many entries wait in memory. Those of a topic that ended do so no more."""
        waiting_bytes = (self.entries_seen - self.entries_in_files) * ENTRY_BYTES
        is_full = waiting_bytes > BEHIND_FACTOR * self.config.queue_tail_bytes_max
        before = self.store.appended_end
        try:
            appended = self.store.append(batch, queue_id=queue_id, ends_topic=ends_topic)
        except Busy as refusal:
            why = str(refusal)
        else:
            assert self.has_ended_a_topic or not is_full
            return appended
        assert is_full
        assert "consume queue entries wait in memory" in why
        assert self.store.appended_end == before
        return None

    @rule()
    def confirm_appended(self) -> None:
        self.confirm(self.store.appended_end)

    @rule()
    def confirm_flushed(self) -> None:
        self.confirm(max(self.store.flushed_end, self.store.confirmed_end))

    def confirm(self, end: int) -> None:
        before = self.store.confirmed_end
        self.store.confirm(end)
        self.entries_seen += sum(sent.queued and before < sent.end <= end for sent in self.sent)

    @rule(step_ms=st.integers(0, 9_000))
    def pass_time(self, step_ms: int) -> None:
        self.clock.advance_ms(step_ms)

    @rule(step_ms=st.integers(-5_000, 5_000))
    def step_the_wall_clock(self, step_ms: int) -> None:
        self.clock.step_wall_ms(step_ms)

    @rule()
    def begin_flush(self) -> None:
        work = self.store.ledger.take_flush()
        if work is not None:
            assert self.flush is None
            self.flush = work
            if work.checkpoint is not None:
                self.entries_taken = self.entries_seen

    @precondition(lambda self: self.flush is not None)
    @rule(with_checkpoint=st.booleans())
    def end_flush(self, with_checkpoint: bool) -> None:
        assert self.flush is not None
        self.flush.run()
        self.store.ledger.finish_flush(self.flush)
        checkpoint, self.flush = self.flush.checkpoint, None
        if checkpoint is not None and with_checkpoint:
            checkpoint.run()
            self.store.ledger.finish_checkpoint(checkpoint)
            self.entries_in_files = self.entries_taken

    @rule()
    def prepare_a_segment(self) -> None:
        work = self.store.supply.take_prepare()
        if work is not None:
            work.run()
            self.store.supply.finish_prepare(work)

    # -------------------------------------------------------------------------- fate

    @rule()
    def stop_and_start(self) -> None:
        self.store.close()
        self.open()
        assert self.store.recovery.clean
        self.expect_all()

    @rule()
    def kill_and_start(self) -> None:
        old = self.root
        shutil.copytree(old, self.move_to_new_root())
        self.open()
        assert not self.store.recovery.clean
        self.expect_all()

    @rule(seed=st.integers(0, 1 << 30))
    def lose_power_and_start(self, seed: int) -> None:
        flushed_end = self.store.flushed_end
        self.disk.cut_power(self.move_to_new_root(), random.Random(seed))
        self.open()
        kept = [sent for sent in self.sent if sent.end <= self.store.appended_end]
        assert self.store.appended_end >= flushed_end
        self.sent = kept
        self.expect_all()

    # Damage that a start does not look for is met later: see test_lazy_queues.py.
    @precondition(lambda self: self.config.queue_checks_at_start_max > 0)
    @rule(seed=st.integers(0, 1 << 30))
    def lose_a_derived_file(self, seed: int) -> None:
        self.store.close()
        files = sorted((self.root / "consumequeue").rglob("0*"))
        files += [self.root / "consumequeue.ends", self.root / "checkpoint"]
        lost = random.Random(seed).choice([file for file in files if file.is_file()])
        if lost.parent != self.root:
            lost.unlink()
        elif seed % 2:
            lost.write_bytes(random.Random(seed).randbytes(200))
        self.open()
        self.expect_all()

    @rule()
    def look_without_touching(self) -> None:
        disk = FaultDisk(self.root)
        seen = open_store(disk, self.config, self.clock, read_only=True)
        assert seen.appended_end == self.store.appended_end
        check_agreement(seen)
        disk.abandon()

    # -------------------------------------------------------------------------- the model

    def expect_all(self) -> None:
        """The log holds what was sent, in order, and the queues all of that."""
        records = log_records(self.store)
        assert [record.body for record in records] == [sent.body for sent in self.sent]
        timestamps = [record.store_timestamp_ms for record in records]
        assert timestamps == sorted(timestamps)
        assert self.store.flushed_end == self.store.appended_end == self.store.confirmed_end
        check_agreement(self.store)

    @invariant()
    def queues_grow_with_what_is_confirmed(self) -> None:
        if not hasattr(self, "store"):
            return
        ends: dict[tuple[str, int], int] = {}
        for sent in self.sent:
            if sent.end > self.store.confirmed_end:
                # As far as its end is stored and not confirmed, it is empty already.
                if sent.ends_topic:
                    ends = {name: end for name, end in ends.items() if name[0] != sent.ends_topic}
                continue
            if sent.ends_topic:
                for name in ends:
                    ends[name] = 0 if name[0] == sent.ends_topic else ends[name]
            if sent.queued:
                ends[sent.topic, sent.queue_id] = ends.get((sent.topic, sent.queue_id), 0) + 1
        for (topic, queue_id), end in ends.items():
            assert self.store.queues.bounds(topic, queue_id).max_offset == end
        assert self.store.dispatched_end <= self.store.confirmed_end <= self.store.appended_end
        assert self.store.flushed_end <= self.store.appended_end


def _settings(count: int) -> settings:
    return settings(
        max_examples=examples(count),
        stateful_step_count=40,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow],
    )


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = _settings(50)


class LongStoreMachine(StoreMachine):
    """The same, longer."""


TestStoreModelAtLength = pytest.mark.long(LongStoreMachine.TestCase)
TestStoreModelAtLength.settings = _settings(200)


def test_appends_that_nobody_flushes_become_busy_until_a_checkpoint() -> None:
    """The search has found this one: the model took BUSY for a broken promise."""
    machine = StoreMachine()
    try:
        machine.start(config=CONFIGS[2])
        for _ in range(13):
            machine.append("Orders", 0, [0], prepared=False)
        machine.confirm_appended()
        machine.append("Orders", 0, [0], prepared=False)
        assert len(machine.sent) == 13
        machine.begin_flush()
        machine.end_flush(with_checkpoint=True)
        machine.append("Orders", 0, [0], prepared=False)
        assert len(machine.sent) == 14
        machine.kill_and_start()
    finally:
        machine.teardown()
