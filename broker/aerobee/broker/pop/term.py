"""A master's side of POP's journal: its queues, and the writing of their decisions.

    queue = term.queue(key); ... = queue.take(...); done = term.write(entries)

Owns: one `QueueState` for each queue of a group that POP consumes. Look it up for each request:
after entries were dropped it is another one, or none.

Invariant: once everything waiting is confirmed, every queue is as the journal says. And what the
offset journal has finished for the group, such as sent-back messages or dead letters, is finished
here before anything else is decided: a message moved by the last master is not redelivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.pop.entries import Begun, Ended, PopEntry
from aerobee.broker.pop.journal_state import PopJournalState, apply_entries
from aerobee.broker.pop.queue_state import QueueState, first_serial
from aerobee.broker.pop.requests import PopLimits
from aerobee.broker.pop.standing import Standing
from aerobee.broker.pop.waits import HeldUntil, Unsure
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, Busy
from aerobee.store.engine.tables.finished_ranges import Range


class Written(Protocol):
    """A future of what was written to the journal; done once it is in effect, or never will be."""

    def exception(self) -> BaseException | None:
        """Why it is not in effect, once that is known."""
        ...


class EntryWriter(Protocol):
    """What a term needs of `JournalWriter`."""

    def add(self, entry: PopEntry | ImageEnd, *, is_durable: bool = True) -> Written: ...

    def waiting(self) -> Iterator[PopEntry | ImageEnd]: ...

    @property
    def newest(self) -> Written | None: ...


class PopTerm:
    """A `JournalTerm`; on the loop."""

    def __init__(
        self,
        state: PopJournalState,
        writer: EntryWriter,
        clock: Clock,
        *,
        is_ordered: Callable[[str], bool],
        held_until_ms: HeldUntil,
        finished_elsewhere: Callable[[GroupQueue], Iterable[Range] | None],
        limits: PopLimits | None = None,
    ) -> None:
        """`is_ordered`: whether order matters for a group.
        `finished_elsewhere`: what is confirmed to be finished by other means, in rising order;
        None: the group has nothing there any more, as after the end of a topic. It raises
        AerobeeError while that is not known."""
        self._state = state
        self._writer = writer
        self._clock = clock
        self._is_ordered = is_ordered
        self._limits = limits or PopLimits()
        self._held_until_ms = held_until_ms
        self._finished_elsewhere = finished_elsewhere
        self._drops = 0
        queues = state.copies()
        self._unsure = {key: self._unsure_of(each) for key, each in queues.items()}
        self._queues = {key: self._made(key, each) for key, each in queues.items()}
        self._unsettled = set(self._queues)

    def _unsure_of(self, standing: Standing) -> Unsure:
        if not self._state.latest_ms:
            return Unsure()  # nothing was delivered after the file, which a stop has written
        begin_ms = self._state.latest_ms - self._limits.unsure_ms
        until_ms = self._clock.now_ms() + self._limits.unsure_held_ms
        return Unsure.of(standing.flights.values(), begin_ms, until_ms)

    def _made(self, key: GroupQueue, standing: Standing) -> QueueState:
        return QueueState(
            key,
            standing,
            self._clock.now_ms(),
            is_ordered=self._is_ordered(key.group),
            held_until_ms=self._held_until_ms,
            unsure=self._unsure.get(key, Unsure()),
            limits=self._limits,
        )

    # ------------------------------------------------------------------------------ queues

    def queue(self, key: GroupQueue) -> QueueState | None:
        """None: POP does not consume the queue. A new object after the group's order setting has
        changed. Raises AerobeeError: it is not known now."""
        queue = self._queues.get(key)
        if queue is not None and queue.is_ordered != self._is_ordered(key.group):
            queue = self._queues[key] = self._made(key, queue.standing)
        if queue is not None and key in self._unsettled:
            finished = self._finished_elsewhere(key)
            if finished is None:
                self.end(key)
                return None
            self.write(queue.settle(finished, self._clock.now_ms()))
            self._unsettled.discard(key)
        return queue

    def has(self, key: GroupQueue) -> bool:
        """Whether POP consumes the queue."""
        return key in self._queues

    def is_ahead(self, key: GroupQueue, committed: int) -> bool:
        """Whether more of a queue is finished than up to `committed`."""
        queue = self._queues.get(key)
        return queue is not None and queue.committed > committed

    @property
    def newest(self) -> Written | None:
        """The writer's future for everything written and not confirmed; None: there is nothing."""
        return self._writer.newest

    def queues(self) -> Iterable[QueueState]:
        return self._queues.values()

    def begin(self, key: GroupQueue, offset: int) -> Written:
        """POP consumes the queue from now on, beginning at this offset. Returns the writer's
        future: done when that is confirmed and on disk. Raises AerobeeError."""
        assert key not in self._queues, key
        now_ms = self._clock.now_ms()
        serial = first_serial(now_ms)
        done = self._writer.add(Begun(key, offset, serial, now_ms))
        self._queues[key] = self._made(key, Standing(offset, serial))
        self._unsettled.add(key)
        return done

    def end(self, key: GroupQueue) -> Written:
        """POP stops consuming the queue; what is in flight is forgotten. As `begin`."""
        done = self._writer.add(Ended(key, self._clock.now_ms()))
        self._queues.pop(key, None)
        return done

    def write(self, entries: Sequence[PopEntry]) -> Written | None:
        """Add a queue's decisions, in the same turn of the loop. Returns the writer's future for
        the last entry; None: there are no entries.

        Raises:
            AerobeeError: these decisions must not be reported. They were undone, or some of them
                took effect although nobody is told, which costs attempts, not messages.
        """
        drops = self._drops
        done: Written | None = None
        try:
            for entry in entries:
                done = self._writer.add(entry, is_durable=False)
        except AerobeeError:
            self.dropped(self._writer.waiting())
            raise
        if drops != self._drops:
            # Adding it flushed the previous record, which failed; these decisions build on that
            # one.
            self.dropped(self._writer.waiting())
            raise Busy(
                "an earlier entry could not be written, so this one was not either; try again"
            )
        return done

    # ------------------------------------------------------------------------------ JournalTerm

    def counted(self, entries: Sequence[PopEntry | ImageEnd]) -> None:
        """Nothing to do: it is already in effect here."""

    def dropped(self, waiting: Iterable[PopEntry | ImageEnd]) -> None:
        """Undo what was not appended, as if it had never been decided."""
        self._drops += 1
        queues = self._state.copies()
        apply_entries(queues, waiting)
        self._queues = {key: self._resumed(key, each) for key, each in queues.items()}
        self._unsettled = set(self._queues)

    def _resumed(self, key: GroupQueue, standing: Standing) -> QueueState:
        queue = self._queues.get(key)
        if queue is None:
            return self._made(key, standing)
        queue.resume(standing)
        return queue

    def image(self) -> Iterator[PopEntry]:
        """The whole state. See `JournalTerm`."""
        for key in list(self._queues):
            queue = self._queues.get(key)
            if queue is None:
                continue
            for part in queue.standing.image(key, self._clock.now_ms()):
                drops = self._drops
                yield part
                if drops != self._drops:
                    # Adding it flushed the previous record, which failed: this part contains what
                    # was dropped, and takes effect. So it does here; the image is restarted.
                    self.dropped(self._writer.waiting())
                    raise Busy("an entry before a part of an image was not written")


class PopTerms:
    """A `JournalClient`: one `PopTerm` for each term as master."""

    def __init__(
        self,
        make_term: Callable[[EntryWriter], PopTerm],
        *,
        on_begin: Callable[[PopTerm], None],
        on_end: Callable[[], None],
    ) -> None:
        """`on_begin` and `on_end` must not await anything."""
        self._make_term = make_term
        self._on_begin = on_begin
        self._on_end = on_end

    def begin(self, writer: EntryWriter, epoch: int, *, is_unclean: bool) -> PopTerm:
        """Everything in the log is confirmed and applied."""
        term = self._make_term(writer)
        self._on_begin(term)
        return term

    def end(self) -> None:
        self._on_end()
