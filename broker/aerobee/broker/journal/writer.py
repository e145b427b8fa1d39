"""The master's writer of a journal: entries become records, which take effect once confirmed.

Owns: the batch that is being filled, and the records that wait to be confirmed. Entries of one turn
of the loop share a record; under load a record waits for more of them, but never longer than
LINGER_S. On the loop; nothing here waits.

Invariant: entries take effect in the order in which they were added; a record that could not be
appended leaves no trace; the state changes when a record is confirmed, before anyone waiting for it
is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from aerobee.broker.journal.records import BODY_BYTES_MAX, ImageEnd, body_of
from aerobee.broker.journal.state import JournalState, JournalTerm
from aerobee.runtime.errors import AerobeeError, Busy, NotMaster, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.runtime.waiting import SharedFuture

log = logging.getLogger(__name__)

Entry = TypeVar("Entry")

LINGER_S = 0.002
LINGER_ALONE_S = 0.0005
"""After a record with a single entry: a caller that adds entries singly need not wait."""
WAITING_BYTES_MAX = 8 * 1024 * 1024
"""Size of entries that are not confirmed yet; beyond this, callers get Busy."""
ENTRY_BYTES = 400
"""Approximate memory of an entry besides its text."""


class Placed(Protocol):
    """Where a record is."""

    @property
    def base_queue_offset(self) -> int: ...

    @property
    def end(self) -> int: ...


class WrittenLog(Protocol):
    """What the writer needs of the log."""

    def append(self, body: bytes, *, ends_topic: str = "") -> Placed:
        """`ends_topic`: the record is the end of this topic. Raises AerobeeError: nothing was
        stored, or the store has failed."""
        ...

    def fail(self, error: StoreFailed) -> None:
        """The log's content is not what this broker takes it for: the broker ends."""
        ...

    def when_confirmed(self, end: int, told: Callable[[bool], None]) -> None:
        """Calls back with True once all below `end` is confirmed; False if the term ends first."""
        ...

    def when_flushed(self, end: int, told: Callable[[bool], None]) -> None:
        """Flush now; calls back with True once everything below `end` is on disk."""
        ...


@dataclass(slots=True, eq=False)
class _Batch(Generic[Entry]):
    """The entries of one record."""

    done: asyncio.Future[None]
    """Done when the record is confirmed, and flushed if required; or raises why it never was."""
    entries: list[Entry | ImageEnd] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    body_bytes: int = 0
    waiting_bytes: int = 0
    is_durable: bool = False
    ends_topic: str = ""
    queue_offset: int = 0


class JournalWriter(Generic[Entry]):
    """The writer of one term; see the module."""

    def __init__(
        self,
        name: str,
        subject: str,
        state: JournalState[Entry],
        journal_log: WrittenLog,
        *,
        linger_s: float = LINGER_S,
    ) -> None:
        """`name` of the journal and its `subject`, a plural, are for errors. `linger_s`: 0 if a
        caller waits for each entry, and the entries of one turn are enough for a record."""
        self._linger_s = linger_s
        self._name = name
        self._subject = subject
        self._state = state
        self._log = journal_log
        self._term: JournalTerm[Entry] | None = None
        self._loop = asyncio.get_running_loop()
        self._open: _Batch[Entry] | None = None
        self._confirming: deque[_Batch[Entry]] = deque()
        self._waiting_bytes = 0
        self._written_s = float("-inf")
        self._written_entries = 0
        self._is_over = False
        self.next_offset = state.next_offset
        """The number of the record that is written next."""

    def __repr__(self) -> str:
        return f"JournalWriter({self._name}, waiting={len(self._confirming)} records)"

    def attach(self, term: JournalTerm[Entry]) -> None:
        """Sets who is told what becomes of the entries; the term needs this object first."""
        self._term = term

    @property
    def waiting_bytes(self) -> int:
        """Of entries that are not confirmed yet."""
        return self._waiting_bytes

    def waiting(self) -> Iterator[Entry | ImageEnd]:
        """The entries that are not in effect yet, in order."""
        for batch in self._batches():
            yield from batch.entries

    @property
    def newest(self) -> asyncio.Future[None] | None:
        """The newest unconfirmed record; done as described for `add`."""
        if self._open is not None:
            return self._open.done
        return self._confirming[-1].done if self._confirming else None

    # ------------------------------------------------------------------------------ adding

    def add(
        self, entry: Entry | ImageEnd, *, is_durable: bool = True, ends_topic: str = ""
    ) -> asyncio.Future[None]:
        """Add an entry; the future is done when it is in effect, with `is_durable` only when it is
        also on disk. `ends_topic`: its record marks the end of this topic, see
        `MessageStore.append`; call `flush` before and after it.

        The future raises AerobeeError: NotWritable, Busy, ShuttingDown, NotMaster, MessageTooLarge
        or StoreFailed if nothing was written; NotMaster also if the term is over and the outcome
        unknown.

        Raises:
            NotMaster: the term is over.
            Busy: too much is waiting already.
        """
        if self._is_over:
            raise NotMaster(self._term_over)
        text = entry.text() if isinstance(entry, ImageEnd) else self._state.encode(entry)
        batch = self._room_for(text)
        batch.entries.append(entry)
        batch.texts.append(text)
        batch.is_durable |= is_durable
        batch.ends_topic = batch.ends_topic or ends_topic
        return batch.done

    def flush(self) -> None:
        """Write the record that is being filled, if there is one."""
        if self._open is not None:
            self._write()

    def _room_for(self, text: str) -> _Batch[Entry]:
        size = len(text) + ENTRY_BYTES
        if self._waiting_bytes and self._waiting_bytes + size > WAITING_BYTES_MAX:
            raise Busy(
                f"{self._waiting_bytes} bytes of {self._subject} wait for the log; ask again in a "
                "moment"
            )
        batch = self._open
        if batch is not None and batch.body_bytes + len(text) > BODY_BYTES_MAX:
            self._write()
            batch = None
        if batch is None:
            batch = self._open = self._begin()
        batch.body_bytes += len(text) + 1
        batch.waiting_bytes += size
        self._waiting_bytes += size
        return batch

    def _begin(self) -> _Batch[Entry]:
        done: SharedFuture[None] = SharedFuture()
        # The caller may be gone when it fails.
        done.add_done_callback(_look_at)
        linger_s = self._linger_s
        if self._written_entries <= 1:
            linger_s = min(linger_s, LINGER_ALONE_S)
        wait_s = self._written_s + linger_s - self._loop.time()
        # Many calls share it: its log lines belong to none of them.
        batch: _Batch[Entry] = _Batch(done)
        if wait_s > 0:
            delay_s = min(wait_s, self._linger_s)
            self._loop.call_later(delay_s, self._write_if_open, batch, context=Context())
        else:
            self._loop.call_soon(self._write_if_open, batch, context=Context())
        return batch

    # ------------------------------------------------------------------------------ writing

    def _write_if_open(self, batch: _Batch[Entry]) -> None:
        if self._open is batch:
            self._write()

    def _write(self) -> None:
        batch, self._open = self._open, None
        assert batch is not None
        self._written_s = self._loop.time()
        self._written_entries = len(batch.entries)
        try:
            placed = self._log.append(body_of(batch.texts), ends_topic=batch.ends_topic)
        except AerobeeError as error:
            self._drop(batch, error)
            return
        except Exception as error:
            # No caller above this turn of the loop, but others are waiting.
            log_event(log, "journal", level=logging.ERROR, journal=self._name, reason=repr(error))
            self._drop(
                batch, AerobeeError(f"the {self._name} could not be written: {error!r:.200}")
            )
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

    def _fail(self, batch: _Batch[Entry], queue_offset: int) -> None:
        """The record is in the log, at a place other than expected: replicas would apply what this
        broker does not. This is a bug; the broker stops here."""
        error = StoreFailed(
            f"record {queue_offset} of the {self._name} was written where {self.next_offset} was "
            "expected, so something else writes to it; restart the broker"
        )
        log_event(log, "journal", level=logging.ERROR, journal=self._name, reason=error)
        self._waiting_bytes -= batch.waiting_bytes
        if not batch.done.done():
            batch.done.set_exception(error)
        self.end()
        self._log.fail(error)

    def _drop(self, batch: _Batch[Entry], error: AerobeeError) -> None:
        """The record is not in the log: undo it as if its entries had never been added."""
        self._waiting_bytes -= batch.waiting_bytes
        if self._term is not None:
            self._term.dropped(self.waiting())
        if not batch.done.done():
            batch.done.set_exception(error)

    def _on_confirmed(self, batch: _Batch[Entry], end: int, reached: bool) -> None:
        if self._is_over or not reached:
            return  # `end` reports it
        assert self._confirming[0] is batch, "the log is confirmed in its order"
        self._confirming.popleft()
        self._state.apply(batch.entries, batch.queue_offset)
        self._waiting_bytes -= batch.waiting_bytes
        if self._term is not None:
            self._term.counted(batch.entries)
        if batch.is_durable:
            self._log.when_flushed(end, lambda reached: _finish(batch.done))
        else:
            _finish(batch.done)

    def _batches(self) -> list[_Batch[Entry]]:
        return [*self._confirming, *([self._open] if self._open is not None else ())]

    def end(self) -> None:
        """The term is over: nothing more is written or reported as in effect."""
        self._is_over = True
        batches = self._batches()
        self._confirming.clear()
        self._open = None
        if self._term is not None:
            self._term.dropped(())
        for batch in batches:
            if not batch.done.done():
                batch.done.set_exception(NotMaster(self._term_over))

    @property
    def _term_over(self) -> str:
        return (
            f"this replica's term as master ended before {self._subject} were confirmed, so they "
            "may or may not count; ask the route again for the master"
        )


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _look_at(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()
