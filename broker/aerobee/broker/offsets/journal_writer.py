"""The master's hand on the offset journal: entries become records, records count once confirmed.

Owns: the batch that is being filled, the records that wait to be confirmed, and what the offsets
will be with them. Entries of one turn of the loop share a record; under load a record waits for
more of them, but never longer than LINGER_S. On the loop; nothing here waits.

Always holds: what is checked against `standing` is appended in the order of the checks, so that no
commit in the log moves an offset back; a record that could not be appended leaves no trace; offsets
change when a record is confirmed, before anybody who waits for it hears of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextvars import Context
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from aerobee.broker.groups.lease_journal import LeaseRecord
from aerobee.broker.groups.queue_leases import QueueKey
from aerobee.broker.offsets.journal_records import (
    BODY_BYTES_MAX,
    Entry,
    LeaseEntry,
    OffsetEntry,
    OffsetsRemoved,
    TopicEnded,
    body_of,
    entry_text,
    offset_text,
)
from aerobee.broker.offsets.journal_state import OffsetJournalState
from aerobee.broker.offsets.merge import Change, ChangeKind, Standing, merge
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy, MqError, NotMaster, StoreFailed
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

LINGER_S = 0.002
LINGER_ALONE_S = 0.0005
"""After a record with one entry: who commits one thing after the other gains nothing by waiting."""
WAITING_BYTES_MAX = 8 * 1024 * 1024
"""Of entries that are not confirmed yet; beyond, commits are told to wait."""
ENTRY_BYTES = 400
"""About what an entry takes in memory beside its text."""

TERM_OVER = (
    "this replica's term as master has ended before the offsets were confirmed, they may count or "
    "not; ask the route again for the master"
)


class Placed(Protocol):
    """Where a record lies."""

    @property
    def base_queue_offset(self) -> int: ...

    @property
    def end(self) -> int: ...


class JournalLog(Protocol):
    """What the writer needs of the log."""

    def append(self, body: bytes, *, ends_topic: str = "") -> Placed:
        """`ends_topic`: the record is the end of this topic. Raises MqError: nothing was stored,
        or the store has failed."""
        ...

    def fail(self, error: StoreFailed) -> None:
        """What is in the log is not what this broker takes it for: the broker ends."""
        ...

    def when_confirmed(self, end: int, told: Callable[[bool], None]) -> None:
        """Tell True once everything below `end` is confirmed; False if the term ends before."""
        ...

    def when_flushed(self, end: int, told: Callable[[bool], None]) -> None:
        """Flush now; tell True once the disk has everything below `end`."""
        ...


@dataclass(slots=True, eq=False)
class Batch:
    """The entries of one record."""

    done: asyncio.Future[None]
    """Done when the record is confirmed, and flushed if it must be; or why it never was."""
    entries: list[Entry] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    body_bytes: int = 0
    waiting_bytes: int = 0
    is_durable: bool = False
    ends_topic: str = ""
    queue_offset: int = 0


class OffsetJournalWriter:
    """One term's; see the module."""

    def __init__(
        self,
        state: OffsetJournalState,
        journal_log: JournalLog,
        clock: Clock,
        *,
        on_reset: Callable[[QueueKey], None],
    ) -> None:
        """`on_reset` is told when a reset has set an offset, or a removal has taken it away, before
        whoever asked for it."""
        self._state = state
        self._log = journal_log
        self._clock = clock
        self._on_reset = on_reset
        self._loop = asyncio.get_running_loop()
        self._open: Batch | None = None
        self._confirming: deque[Batch] = deque()
        # What will stand once all that waits is confirmed, and the newest entry that says so.
        self._ahead: dict[QueueKey, tuple[Standing | None, OffsetEntry | OffsetsRemoved]] = {}
        # Which of these each waiting removal takes away, by its identity; and by group and topic
        # how many removals wait that name no queue.
        self._removing: dict[int, list[QueueKey]] = {}
        self._removing_all: Counter[tuple[str | None, str | None]] = Counter()
        self._waiting_bytes = 0
        self._written_s = float("-inf")
        self._written_entries = 0
        self._is_over = False
        self.next_offset = state.next_offset
        """The number of the record that is written next."""

    def __repr__(self) -> str:
        return f"OffsetJournalWriter(waiting={len(self._confirming)} records)"

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def standing(self, key: QueueKey) -> Standing | None:
        """What will stand once all that waits is confirmed."""
        ahead = self._ahead.get(key)
        return self._state.standing(key) if ahead is None else ahead[0]

    def keys(self) -> list[QueueKey]:
        """Every queue of every group for which something stands, or will."""
        return [*self._state.keys(), *(key for key in self._ahead if not self._state.standing(key))]

    def selected(self, removed: OffsetsRemoved) -> list[QueueKey]:
        """The queues on which a removal takes an offset away, now or once all that waits counts."""
        ahead: Iterable[QueueKey] = filter(removed.selects, self._ahead)
        if removed.queue_id is not None:
            ahead = [key] if (key := removed.queue) in self._ahead else ()
        return list(dict.fromkeys(chain(self._state.selected(removed), ahead)))

    def is_changing(self, group: str) -> bool:
        """Whether anything of the group waits to be confirmed."""
        return any(key.group == group for key in self._ahead)

    def is_removing(self, key: QueueKey) -> bool:
        """Whether a removal of the queue's offset waits to be confirmed."""
        if not self._removing:
            return False
        group, topic, _ = key
        if any(self._removing_all[each] for each in ((group, None), (None, topic), (group, topic))):
            return True
        ahead = self._ahead.get(key)
        return ahead is not None and isinstance(ahead[1], OffsetsRemoved)

    def lease(self) -> LeaseRecord | None:
        """The newest record of queue leases once all that waits counts; None: there is none."""
        record, parts = self._state.lease, self._state.lease_parts.copy()
        for batch in self._waiting():
            for entry in batch.entries:
                if isinstance(entry, LeaseEntry):
                    record = parts.take(entry) or record
        return record

    def flush(self) -> None:
        """Write the record that is being filled, if there is one."""
        if self._open is not None:
            self._write()

    def waiting_for(self, key: QueueKey) -> asyncio.Future[None] | None:
        """The newest record, if one that concerns this queue still waits."""
        if key not in self._ahead:
            return None
        return self._open.done if self._open is not None else self._confirming[-1].done

    # ------------------------------------------------------------------------------ adding

    def change(
        self, key: QueueKey, change: Change, client_id: str = "", *, is_durable: bool = False
    ) -> asyncio.Future[None]:
        """Add an entry; done when it counts. `is_durable`: only when it is on the disk, too.

        The future raises MqError, as NotWritable, Busy, ShuttingDown, NotMaster, MessageTooLarge,
        StoreFailed: nothing was written; or NotMaster: the term is over and the outcome unknown.

        Raises:
            Busy: too much waits already.
        """
        entry = OffsetEntry(key, change, self._clock.now_ms(), client_id)
        batch = self._room_for(entry, offset_text(entry), is_durable=is_durable)
        self._look_ahead(entry)
        return batch.done

    def remove(self, removed: OffsetsRemoved) -> asyncio.Future[None]:
        """Take offsets away; done when it counts and is on the disk, raising as `change`."""
        batch = self._room_for(removed, entry_text(removed), is_durable=True)
        self._look_ahead(removed)
        return batch.done

    def end_topic(
        self, topic: str, deleted_at_ms: int, *, lease_epoch: int
    ) -> asyncio.Future[None]:
        """End a topic, in a record of its own; done when it counts and is on the disk, raising as
        `change`. `lease_epoch` is the newest queue lease that was granted."""
        self.flush()
        ended = TopicEnded.of(topic, deleted_at_ms, lease_epoch, self._clock.now_ms())
        batch = self._room_for(ended, entry_text(ended), is_durable=True)
        batch.ends_topic = topic
        self._look_ahead(ended)
        self._write()
        return batch.done

    def add(self, entry: Entry, *, is_durable: bool = True) -> asyncio.Future[None]:
        """Add an entry that changes no offset; done and raising as `change`."""
        return self._room_for(entry, entry_text(entry), is_durable=is_durable).done

    def _room_for(self, entry: Entry, text: str, *, is_durable: bool) -> Batch:
        if self._is_over:
            raise NotMaster(TERM_OVER)
        size = len(text) + ENTRY_BYTES
        if self._waiting_bytes and self._waiting_bytes + size > WAITING_BYTES_MAX:
            raise Busy(
                f"{self._waiting_bytes} bytes of committed offsets wait for the log; commit again "
                "in a moment"
            )
        batch = self._open
        if batch is not None and batch.body_bytes + len(text) > BODY_BYTES_MAX:
            self._write()
            batch = None
        if batch is None:
            batch = self._open = self._begin()
        batch.entries.append(entry)
        batch.texts.append(text)
        batch.body_bytes += len(text) + 1
        batch.waiting_bytes += size
        batch.is_durable |= is_durable
        self._waiting_bytes += size
        return batch

    def _look_ahead(self, entry: Entry) -> None:
        """Note what will stand with this entry, the newest of all that wait."""
        if isinstance(entry, OffsetEntry):
            self._ahead[entry.key] = merge(self.standing(entry.key), entry.change), entry
        elif isinstance(entry, OffsetsRemoved):
            if entry.queue_id is None:
                self._removing_all[entry.group, entry.topic] += 1
            keys = self._removing[id(entry)] = self.selected(entry)
            for key in keys:
                self._ahead[key] = None, entry

    def _begin(self) -> Batch:
        done: asyncio.Future[None] = self._loop.create_future()
        # Whoever asked may be gone when it fails.
        done.add_done_callback(_look_at)
        linger_s = LINGER_S if self._written_entries > 1 else LINGER_ALONE_S
        wait_s = self._written_s + linger_s - self._loop.time()
        # Many calls share it: what it logs is of none of them.
        batch = Batch(done)
        if wait_s > 0:
            delay_s = min(wait_s, LINGER_S)
            self._loop.call_later(delay_s, self._write_if_open, batch, context=Context())
        else:
            self._loop.call_soon(self._write_if_open, batch, context=Context())
        return batch

    # ------------------------------------------------------------------------------ writing

    def _write_if_open(self, batch: Batch) -> None:
        if self._open is batch:
            self._write()

    def _write(self) -> None:
        batch, self._open = self._open, None
        assert batch is not None
        self._written_s = self._loop.time()
        self._written_entries = len(batch.entries)
        try:
            placed = self._log.append(body_of(batch.texts), ends_topic=batch.ends_topic)
        except MqError as error:
            self._drop(batch, error)
            return
        except Exception as error:
            # Nobody is above this turn of the loop, and somebody waits.
            log_event(log, "offset journal", level=logging.ERROR, trouble=repr(error))
            self._drop(batch, MqError(f"the offset journal could not be written: {error!r:.200}"))
            return
        if placed.base_queue_offset != self.next_offset:
            self._fail(batch, placed.base_queue_offset)
            return
        batch.texts = []
        batch.queue_offset = placed.base_queue_offset
        self.next_offset += 1
        self._confirming.append(batch)
        end = placed.end
        self._log.when_confirmed(end, lambda reached: self._on_confirmed(batch, end, reached))

    def _fail(self, batch: Batch, queue_offset: int) -> None:
        """The record is in the log, at another place than is known here: replicas would apply what
        this broker does not. By a bug; it goes no further."""
        error = StoreFailed(
            f"record {queue_offset} of the offset journal was written where {self.next_offset} was "
            "to come: somebody else writes to it; the broker must restart"
        )
        log_event(log, "offset journal", level=logging.ERROR, trouble=error)
        self._waiting_bytes -= batch.waiting_bytes
        if not batch.done.done():
            batch.done.set_exception(error)
        self.end()
        self._log.fail(error)

    def _drop(self, batch: Batch, error: MqError) -> None:
        """The record is not in the log: all is as if its entries had never been added."""
        self._waiting_bytes -= batch.waiting_bytes
        self._ahead.clear()
        self._removing.clear()
        self._removing_all.clear()
        for waiting in self._confirming:
            for entry in waiting.entries:
                self._look_ahead(entry)
        if not batch.done.done():
            batch.done.set_exception(error)

    def _on_confirmed(self, batch: Batch, end: int, reached: bool) -> None:
        if self._is_over or not reached:
            return  # end_term tells
        assert self._confirming[0] is batch, "the log is confirmed in its order"
        self._confirming.popleft()
        self._state.apply(batch.entries, batch.queue_offset)
        self._waiting_bytes -= batch.waiting_bytes
        for entry in batch.entries:
            self._forget_ahead(entry)
        if batch.is_durable:
            self._log.when_flushed(end, lambda reached: _finish(batch.done))
        else:
            _finish(batch.done)

    def _forget_ahead(self, entry: Entry) -> None:
        """The entry counts now."""
        if isinstance(entry, OffsetEntry):
            ahead = self._ahead.get(entry.key)
            if ahead is not None and ahead[1] is entry:
                del self._ahead[entry.key]
            if entry.change.kind is ChangeKind.RESET:
                self._on_reset(entry.key)
        elif isinstance(entry, OffsetsRemoved):
            if entry.queue_id is None:
                self._removing_all[entry.group, entry.topic] -= 1
                self._removing_all += Counter()  # without what waits no more
            for key in self._removing.pop(id(entry)):
                ahead = self._ahead.get(key)
                if ahead is not None and ahead[1] is entry:
                    del self._ahead[key]
                    self._on_reset(key)

    def _waiting(self) -> list[Batch]:
        """In the order in which they count."""
        return [*self._confirming, *([self._open] if self._open is not None else ())]

    def end(self) -> None:
        """The term is over: nothing more is written, and nobody is told that it counts."""
        self._is_over = True
        batches = self._waiting()
        self._confirming.clear()
        self._open = None
        self._ahead.clear()
        for batch in batches:
            if not batch.done.done():
                batch.done.set_exception(NotMaster(TERM_OVER))


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _look_at(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()
