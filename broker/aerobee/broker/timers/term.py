"""A master's side of the timer journal: its decisions apply here at once, and take effect once
confirmed.

    intend -> the intent is in the log -> append the acts, any time -> note_acted

Owns: the progress once everything waiting is confirmed; plans are made from that. Acts may follow
their intent at once: a log with the acts has the intent before them.
Invariant: no intent is added while another one is open, so a new master has to deal only with
`open`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.timers.entries import (
    Acted,
    Floor,
    GivenUp,
    Intent,
    IntentKind,
    Mark,
    Marked,
    Removed,
    Source,
    TimerEntry,
)
from aerobee.broker.timers.progress import LOOSE_MAX, TimerProgress
from aerobee.broker.timers.state import TimerJournalState
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy

REASON_LENGTH_MAX: Final = 200


class Done(Protocol):
    """What a term needs of an entry's future."""

    def done(self) -> bool: ...

    def exception(self) -> BaseException | None: ...


class EntryWriter(Protocol):
    """What a term needs of `JournalWriter`."""

    def add(self, entry: TimerEntry | ImageEnd, *, is_durable: bool = True) -> Any: ...

    def flush(self) -> None: ...


class TimerTerm:
    """A `JournalTerm`; on the loop."""

    def __init__(self, state: TimerJournalState, writer: EntryWriter, clock: Clock) -> None:
        self._state = state
        self._writer = writer
        self._clock = clock
        self.progress = state.progress.copy()
        """Do not modify. Replaced by another object after something was dropped."""

    # ------------------------------------------------------------------------------ acting

    def intend(
        self,
        kind: IntentKind,
        sources: Sequence[Source],
        marks: Sequence[Mark] = (),
        *,
        basis: TimerProgress,
        new_due_ms: int = 0,
    ) -> Intent:
        """On return the intent is in the log, though not confirmed. Carry it out, in its order,
        then call `note_acted`. It names the sources that are not done yet.

        `basis`: the `progress` from which sources and marks were chosen.

        Raises:
            AerobeeError: it is not in the log, and nothing is done. Busy: choose again, because
                something in the basis did not come true.
        """
        self._writer.flush()
        progress = self.progress
        if basis is not progress:
            # A mark could cover a message whose removal has been dropped since.
            raise Busy("what the plan was made from has changed; plan again")
        assert progress.open is None, "one intent after the other"
        intent = Intent(
            kind,
            progress.next_number,
            tuple(source for source in sources if not progress.is_done(source)),
            tuple(marks),
            new_due_ms,
            self._clock.now_ms(),
        )
        # It need not be on disk first: the copies follow it in the log.
        done: Done = self._add(intent, is_durable=False)
        self._writer.flush()
        if done.done() and (error := done.exception()) is not None:
            raise error
        return intent

    def note_acted(self) -> None:
        """The open intent has been carried out. The journal records it soon, with the next entries;
        until then a new master looks for each of its acts. Raises AerobeeError."""
        if self.progress.open is not None:
            self._add(Acted(self.progress.open.end_number), is_durable=False)

    def write_out(self) -> None:
        """Everything decided is in the log, though not confirmed. Raises AerobeeError."""
        self._writer.flush()

    def give_up(self, number: int, reason: str) -> Any:
        """One of the open intent's acts can never be done. Returns the same as `remove`. Raises
        AerobeeError."""
        return self._add(
            GivenUp(number, reason[:REASON_LENGTH_MAX], self._clock.now_ms()), is_durable=True
        )

    def remove(self, sources: Sequence[Source], reason: str) -> Any:
        """They will not be delivered. Returns the writer's future: done when that is confirmed and
        on disk.

        Raises:
            Busy: too much is already done out of order, or too much waits to be written.
            NotMaster: the term is over.
        """
        self.check_out_of_turn(len(sources))
        return self.remove_as_requested(sources, reason)

    def remove_as_requested(self, sources: Sequence[Source], reason: str) -> Any:
        """As `remove`, however much is done out of order: a request already in the log, left by
        Apache's broker, can no longer be refused."""
        return self._add(
            Removed(tuple(sources), reason[:REASON_LENGTH_MAX], self._clock.now_ms()),
            is_durable=True,
        )

    def check_out_of_turn(self, count: int) -> None:
        """Check that this many more messages may be delivered early, postponed or removed. Not
        needed for rolls: the floor follows them. Raises Busy."""
        if self.progress.loose_count + count > LOOSE_MAX:
            raise Busy(
                f"{LOOSE_MAX} messages were recalled, delivered early or postponed ahead of their "
                "time: try again once some of them would have been due"
            )

    def raise_floor(self, queue: int, offset: int) -> None:
        """Mark all messages of the queue below this offset as done. Raises AerobeeError."""
        if offset > self.progress.of(queue).floor:
            self._add(Marked((Floor(queue, offset),)), is_durable=False)

    def note_known(self, entry: Marked | Removed) -> Any:
        """Record what another broker that used the folder did, without the journal. Returns the
        writer's future, done when that is in effect and on disk; None if it is already known.
        Raises AerobeeError."""
        return self._add(entry, is_durable=True) if self.progress.would_learn(entry) else None

    def _add(self, entry: TimerEntry, *, is_durable: bool) -> Any:
        done = self._writer.add(entry, is_durable=is_durable)
        self.progress.apply((entry,))
        return done

    # ------------------------------------------------------------------------------ JournalTerm

    def counted(self, entries: Sequence[TimerEntry | ImageEnd]) -> None:
        """Nothing to do: it is already in effect here."""

    def dropped(self, waiting: Iterable[TimerEntry | ImageEnd]) -> None:
        """Undo what was not appended, as if it had never been added."""
        self.progress = self._state.progress.copy()
        self.progress.apply(entry for entry in waiting if not isinstance(entry, ImageEnd))

    def image(self) -> Iterator[TimerEntry]:
        return self.progress.image()


class TimerTerms:
    """A `JournalClient`: one `TimerTerm` for each term as master."""

    def __init__(
        self,
        state: TimerJournalState,
        clock: Clock,
        *,
        on_begin: Callable[[TimerTerm], None],
        on_end: Callable[[], None],
    ) -> None:
        """`on_begin` must not await anything: it starts the mover, which first looks at the term's
        open intent. `on_end`: nothing more is moved."""
        self._state = state
        self._clock = clock
        self._on_begin = on_begin
        self._on_end = on_end

    def begin(self, writer: EntryWriter, epoch: int, *, is_unclean: bool) -> TimerTerm:
        """Everything in the log is confirmed and applied."""
        term = TimerTerm(self._state, writer, self._clock)
        self._on_begin(term)
        return term

    def end(self) -> None:
        self._on_end()
