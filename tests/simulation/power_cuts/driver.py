"""What a broker does with its store, action by action, on a disk that may lose power at any time.

Owns: one running store and the threads beside the loop: `flush` syncs the log, `upkeep` writes
derived files and removes old segments, `segments` prepares new ones, `tables` replaces config
files. Each finished action is recorded in the model before the next one begins, so the model knows
exactly what was promised.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import Busy, NotWritable, StoreFailed
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.flush_work import CheckpointWork, FlushWork
from aerobee.store.engine.log.segment import BLANK_BYTES_MIN
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_ledger import Candidate
from aerobee.store.engine.retention.retention_policy import CleanRequest
from aerobee.store.engine.retention.retention_works import FollowWork
from aerobee.store.engine.retention.unread_search import UnreadSearch
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.format.checked_batch import UNQUEUED_BIT, CheckedBatch
from aerobee.store.format.record import iterate_records
from aerobee.store.format.record_layout import (
    SYSFLAG_TRANSACTION_MASK,
    SYSFLAG_TRANSACTION_ROLLBACK,
)
from aerobee.testing.simulated_disk import SimulatedDisk
from tests.simulation.judge import expect
from tests.simulation.power_cuts.model import UNIQUE_KEY_PREFIX, DocumentState, Model, Sent
from tests.simulation.power_cuts.stepped_threads import SteppedThreads, Work, is_power_cut
from tests.support.stores import batch_of, topic_end_batch

Trace = Callable[[str], None]


class Variant:
    """How works are run. The correct variant runs them; mutants do less, or in another order."""

    def is_ignored(self, thread: str, operation: str, path: str) -> bool:
        """Whether a sync on this thread (`loop` if there is none) returns without doing
        anything."""
        return False

    def run_flush(self, disk: Disk, work: FlushWork) -> None:
        work.run()

    def run_checkpoint(self, disk: Disk, work: CheckpointWork) -> None:
        work.run()

    def replace(self, disk: Disk, path: str, data: bytes) -> None:
        replace_atomically(disk, path, data)


class _Call:
    """A function as a work."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run


class Driver:
    """Every method may raise PowerCut, and Violation for a broken promise."""

    def __init__(
        self,
        disk: SimulatedDisk,
        clock: ManualClock,
        config: StoreConfig,
        model: Model,
        chance: random.Random,
        *,
        variant: Variant,
        trace: Trace | None = None,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.config = config
        self.model = model
        self._chance = chance
        self._variant = variant
        self._trace = trace
        self.threads = SteppedThreads(chance, "flush", "upkeep", "segments", "tables")
        self.confirms_appended = False
        self.fault: Callable[[str, str], OSError | None] | None = None
        self.store: MessageStore | None = None
        self._numbers = 0
        self._is_cleaning = False
        self.use(disk)

    def use(self, disk: SimulatedDisk) -> None:
        """From now on this is the machine's disk."""
        self.disk = disk
        disk.on_step = self.threads.before_step
        disk.is_ignored = self._is_ignored
        disk.trace = self._trace
        disk.fault = self.fault

    def _note(self, text: str) -> None:
        if self._trace is not None:
            self._trace(text)

    def _is_ignored(self, operation: str, path: str) -> bool:
        running = self.threads.running
        return self._variant.is_ignored(running.name if running else "loop", operation, path)

    # ------------------------------------------------------------------------------ life

    def open(self) -> MessageStore:
        self._note("open")
        self.store = MessageStore.open(self.disk, self.clock, self.config)
        # What recovery found is confirmed: consumers may see it, so it must stay.
        self.model.is_closed = False
        return self.store

    def close(self) -> None:
        self._note("close")
        store = self._opened()
        self.threads.drain(self.disk)
        self.check_not_failed()
        store.close()
        self.store = None
        self.model.acknowledged_end = max(self.model.acknowledged_end, self.model.appended_end)
        self.model.is_closed = True
        self._note("closed")

    def abandon(self) -> None:
        """The process has died; the disk must be dead."""
        self.threads.abort()
        self.store = None
        self._is_cleaning = False

    def _opened(self) -> MessageStore:
        assert self.store is not None
        return self.store

    # ------------------------------------------------------------------------------ the loop

    def append(self, topic: str, queue_id: int, sizes: list[int], sys_flag: int) -> None:
        texts = []
        for size in sizes:
            self._numbers += 1
            texts.append((b"%d:" % self._numbers).ljust(size, b"%d" % (self._numbers % 10)))
        keys = f"k{self._numbers % 7} k{self._numbers % 3}"
        unique_key = f"{UNIQUE_KEY_PREFIX}{self._numbers}"
        properties = {"KEYS": keys, "UNIQ_KEY": unique_key} if self._numbers % 5 else {}
        batch = batch_of(topic, *texts, tag="t", sys_flag=sys_flag, properties=properties)
        if batch.size + BLANK_BYTES_MIN > self.config.segment_bytes:
            return
        # A rollback record has no keys of its own.
        taken_back = sys_flag & SYSFLAG_TRANSACTION_MASK == SYSFLAG_TRANSACTION_ROLLBACK
        is_found = bool(properties) and not taken_back
        has_keys = frozenset({*keys.split(), unique_key}) if is_found else frozenset()
        self._append(batch, queue_id, has_keys)

    def end_topic(self, topic: str) -> None:
        """Everything appended to the topic so far is gone."""
        batch = topic_end_batch(topic)
        if batch.size + BLANK_BYTES_MIN <= self.config.segment_bytes:
            self._append(batch, 0, frozenset(), ends_topic=topic)

    def _append(
        self, batch: CheckedBatch, queue_id: int, has_keys: frozenset[str], ends_topic: str = ""
    ) -> None:
        store, topic = self._opened(), batch.topic
        offset = self.model.next_offset(topic, queue_id)
        try:
            appended = store.append(batch, queue_id=queue_id, ends_topic=ends_topic)
        except (Busy, NotWritable) as refusal:
            self._note(f"append refused: {refusal}")
            return
        except StoreFailed as failure:
            self._note(f"append failed: {failure}")
            records = self._records(batch, queue_id, offset, has_keys, ends_topic)
            self.model.doubtful = [sent for sent in records if sent.store_timestamp_ms]
            raise
        expect(
            appended.base_queue_offset == offset,
            f"{topic}/{queue_id} goes on at {appended.base_queue_offset}, not at {offset}",
        )
        expect(
            appended.base_physical_offset >= self.model.appended_end,
            f"an append at {appended.base_physical_offset} overwrites the log, which ends at "
            f"{self.model.appended_end}",
        )
        for sent in self._records(batch, queue_id, offset, has_keys, ends_topic):
            self.model.add(sent)
            self._note(f"appended {sent}")

    def _records(
        self,
        batch: CheckedBatch,
        queue_id: int,
        offset: int,
        keys: frozenset[str],
        ends_topic: str,
    ) -> Iterator[Sent]:
        """The records of a batch as stamped by the store."""
        for record in iterate_records(bytes(batch.buffer)):
            queued = not record.sys_flag & UNQUEUED_BIT
            start = record.physical_offset
            yield Sent(
                batch.topic,
                queue_id,
                offset if queued else None,
                start,
                start + record.size,
                bytes(record.raw),
                record.store_timestamp_ms,
                keys,
                ends_topic,
            )
            offset += queued

    def confirm(self) -> None:
        store = self._opened()
        end = store.appended_end if self.confirms_appended else store.flushed_end
        if end > store.confirmed_end:
            self._note(f"confirm {end}")
            store.confirm(end)

    def begin_flush(self) -> None:
        store = self._opened()
        work = store.ledger.take_flush()
        if work is None:
            return
        self._note(f"flush up to {work.end}" + (", checkpoint" if work.checkpoint else ""))

        def finish() -> None:
            store.ledger.finish_flush(work)
            self.model.acknowledged_end = store.flushed_end
            self._note(f"acknowledged up to {store.flushed_end}")
            if work.checkpoint is not None:
                self._begin_checkpoint(work.checkpoint)

        self._submit("flush", _Call(lambda: self._variant.run_flush(self.disk, work)), finish)

    def _begin_checkpoint(self, work: CheckpointWork) -> None:
        store = self._opened()

        def finish() -> None:
            store.ledger.finish_checkpoint(work)
            self._note("checkpoint finished")

        run = _Call(lambda: self._variant.run_checkpoint(self.disk, work))
        self._submit("upkeep", run, finish)

    def prepare_segment(self) -> None:
        supply = self._opened().supply
        prepare = supply.take_prepare()
        if prepare is not None:
            self._note("prepare a segment")
            self._submit("segments", prepare, lambda: supply.finish_prepare(prepare))
        warm_up = supply.take_warm_up()
        if warm_up is not None:
            self._submit("segments", warm_up, lambda: supply.finish_warm_up(warm_up))

    # ------------------------------------------------------------------------------ retention

    def clean(self) -> None:
        """Remove the oldest segment, if it may be removed."""
        retention = self._opened().retention
        if self._is_cleaning:
            return
        survey = retention.take_survey(CleanRequest(commanded=True, unread=True))
        if survey is None:
            return
        self._is_cleaning = True

        def finish_survey() -> None:
            candidate = retention.finish_survey(survey)
            if candidate is None:
                self._is_cleaning = False
                return
            search = retention.take_search(candidate, ())
            self._submit("upkeep", search, lambda: self._remove(candidate, search))

        self._submit("upkeep", survey, finish_survey)

    def _remove(self, candidate: Candidate, search: UnreadSearch) -> None:
        store = self._opened()
        store.retention.finish_search(search)
        removal = store.retention.take_removal(candidate, search.unread)
        self.model.min_offsets.append(store.min_offset)
        self._note(f"the log begins at {store.min_offset}")

        def finish_removal() -> None:
            follow = store.retention.finish_removal(removal)
            assert follow is not None, "nothing is protected here"
            self.model.min_offsets = [store.min_offset]
            self._note(f"removed up to {store.min_offset}")
            self._submit("upkeep", follow, lambda: finish_follow(follow))

        def finish_follow(follow: FollowWork) -> None:
            store.retention.finish_follow(follow)
            self._is_cleaning = False
            self._note("queues and index follow the log")

        self._submit("upkeep", removal, finish_removal)

    # ------------------------------------------------------------------------------ tables

    def replace_document(self, path: str, data: bytes) -> None:
        state = self.model.documents.setdefault(path, DocumentState())
        if self.threads["tables"].is_busy:
            return
        self._note(f"replace {path} by {len(data)} bytes")
        state.allowed.append(data)

        def finish() -> None:
            # The next one may have begun before the loop learned of this one's end.
            state.allowed = state.allowed[state.allowed.index(data) :]
            self._note(f"{path} replaced")

        run = _Call(lambda: self._variant.replace(self.disk, path, data))
        self._submit("tables", run, finish)

    # ------------------------------------------------------------------------------ the others

    def _submit(self, thread: str, work: Work, finish: Callable[[], None]) -> None:
        def on_end(error: BaseException | None) -> None:
            if error is None:
                finish()
            elif isinstance(error, OSError):
                self._note(f"{thread} failed: {error}")
                if thread != "tables":  # these are retried
                    self._opened().fail(error)
            elif not is_power_cut(error):
                raise error

        self.threads[thread].submit(work, on_end)

    def advance_threads(self) -> None:
        self.threads.advance_one()
        self.disk.check_power()

    def deliver(self) -> None:
        """The loop learns what its threads have finished."""
        self.threads.deliver()

    def check_not_failed(self) -> None:
        """Raises StoreFailed once a thread has seen a disk error."""
        store = self._opened()
        store.confirm(store.confirmed_end)
