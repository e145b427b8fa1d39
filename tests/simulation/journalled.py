"""Worlds of one log and one journal: what `timers` and `pops` are made of.

One master after another works over the log, a list of records in append order. A crash or a
fail-over between any two steps may cut what was not confirmed. What the next master knows follows
from the log alone, or from a file of its state. Time and chance depend only on the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Generic, TypeVar, cast

from aerobee.broker.journal.records import ImageEnd, body_of, read_body
from aerobee.broker.journal.state import JournalState, JournalTerm
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import AerobeeError, Busy, NotMaster

R = TypeVar("R")
S = TypeVar("S", bound=JournalState[Any])


class Crash(Exception):
    """The process dies between two steps."""


@dataclass(frozen=True, slots=True)
class Journalled:
    """A journal record."""

    offset: int
    body: bytes


@dataclass(slots=True)
class Log(Generic[R]):
    """Records by position. `place_of` a record: its queue; "journal" for `Journalled`. `numbers`:
    records that have an act's number."""

    place_of: Callable[[R | Journalled], object]
    records: list[R | Journalled] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    ends: dict[object, int] = field(default_factory=dict)
    confirmed: int = 0

    def append(self, record: R | Journalled, number: int | None = None) -> None:
        if number is not None:
            self.numbers[len(self.records)] = number
        self.records.append(record)
        self.ends[self.place_of(record)] = self.end_of(self.place_of(record)) + 1

    def end_of(self, place: object) -> int:
        return self.ends.get(place, 0)

    def cut(self, end: int) -> None:
        for at in range(end, len(self.records)):
            self.numbers.pop(at, None)
        kept, self.records, self.ends = self.records[:end], [], {}
        for record in kept:
            self.records.append(record)
            self.ends[self.place_of(record)] = self.end_of(self.place_of(record)) + 1


class Written:
    """An entry's future. `end`: the log's end after its record; 0: it is not in the log."""

    def __init__(self) -> None:
        self.error: AerobeeError | None = None
        self.is_done = False
        self.end = 0

    def done(self) -> bool:
        return self.is_done

    def exception(self) -> BaseException | None:
        return self.error


@dataclass(slots=True)
class _Batch:
    entries: list[Any]
    done: Written
    offset: int = -1


class SceneWriter:
    """A `JournalWriter` over the scene's log. `entries_max`: a record with this many is written
    when another entry is added."""

    def __init__(self, scene: JournalScene[Any], *, entries_max: int = 1 << 30) -> None:
        self._scene = scene
        self._entries_max = entries_max
        self._open: _Batch | None = None
        self._waiting: list[_Batch] = []
        self.term: JournalTerm[Any] | None = None
        self.is_over = False

    def add(self, entry: Any, *, is_durable: bool = True) -> Written:
        if self.is_over:
            raise NotMaster("the term is over")
        if self._open is not None and len(self._open.entries) >= self._entries_max:
            self.flush()
        if self._open is None:
            self._open = _Batch([], Written())
        self._open.entries.append(entry)
        return self._open.done

    @property
    def newest(self) -> Written | None:
        """The newest unconfirmed record."""
        if self._open is not None:
            return self._open.done
        return self._waiting[-1].done if self._waiting else None

    def waiting(self) -> Iterator[Any]:
        batches = [*self._waiting, *([self._open] if self._open is not None else ())]
        return iter([entry for batch in batches for entry in batch.entries])

    def flush(self) -> None:
        batch, self._open = self._open, None
        if batch is None:
            return
        scene = self._scene
        entries = scene.journalled(batch.entries)
        if scene.chance.random() < scene.full_share:
            batch.done.is_done, batch.done.error = True, Busy("the disk is full")
            assert self.term is not None
            self.term.dropped(self.waiting())
            return
        texts = [
            each.text() if isinstance(each, ImageEnd) else scene.state.encode(each)
            for each in entries
        ]
        batch.offset = scene.log.end_of("journal")
        scene.log.append(Journalled(batch.offset, body_of(texts)))
        batch.entries, batch.done.end = entries, len(scene.log.records)
        self._waiting.append(batch)

    def confirm(self) -> None:
        """What the log has confirmed takes effect."""
        while self._waiting and self._waiting[0].done.end <= self._scene.log.confirmed:
            batch = self._waiting.pop(0)
            self._scene.state.apply(batch.entries, batch.offset)
            batch.done.is_done = True


class JournalScene(Generic[R]):
    """One master after another, over one log. Its `run` is a life: steps with faults, then peace,
    in which everything owed must come.

    A variant that is broken on purpose overrides what its world says may be overridden.
    """

    crash_shares: ClassVar[Sequence[float]]
    full_shares: ClassVar[Sequence[float]]
    """How often a step crashes, and a record finds the disk full: each seed draws one of each."""
    state: JournalState[Any]

    def __init__(
        self,
        seed: int,
        place_of: Callable[[R | Journalled], object],
        *,
        loses_confirmed: bool,
        trace: Callable[[str], None] | None,
    ) -> None:
        """`loses_confirmed`: the log also loses what was confirmed. Of what is left, everything
        holds."""
        self.loses_confirmed = loses_confirmed
        self._trace = trace
        self.chance = Random(seed)
        self.clock = ManualClock(now_ms=1_000_000)
        self.log: Log[R] = Log(place_of)
        self.saved_state: bytes | None = None
        self.crash_share = self.full_share = 0.0
        self.falls = 0

    # ------------------------------------------------------------------------------ of a world

    def journalled(self, entries: list[Any]) -> list[Any]:
        """The entries that get into the record; a variant may lose some."""
        return entries

    def actions(self) -> list[Callable[[], object]]:
        """A step is one of these."""
        raise NotImplementedError

    def let_time_pass(self) -> None:
        """Before each step."""
        raise NotImplementedError

    def end_step(self) -> None:
        """After each step, even one that crashed."""

    def fall_over(self) -> None:
        """The process dies, and what was not confirmed may be lost; another one begins."""
        raise NotImplementedError

    def come_to_rest(self) -> None:
        """Without faults, until all is done; raises Violation if it does not come to that, or if
        something is missing then."""
        raise NotImplementedError

    def seen(self) -> str:
        """What a line of the trace says of clients."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------ of all

    def recover(
        self, fresh: S, reader: Callable[[int], Callable[[bytes], S]], decode: Callable[..., Any]
    ) -> S:
        """What a new master knows: the saved file, if it fits the log, and the journal after it.
        Everything in the log is confirmed."""
        log = self.log
        log.confirmed = len(log.records)
        journal = [record for record in log.records if isinstance(record, Journalled)]
        state = fresh
        if self.saved_state is not None:
            try:
                state = reader(len(journal))(self.saved_state)
            except ValueError:
                self.saved_state = None
        for record in journal[state.next_offset :]:
            state.apply(cast("list[Any]", read_body(record.body, decode)), record.offset)
        return state

    def tell(self, what: str) -> None:
        if self._trace is not None:
            log = self.log
            self._trace(
                f"{self.clock.now_ms()}: {what}; {len(log.records)} records, "
                f"{log.confirmed} confirmed{self.seen()}"
            )

    def may_crash(self) -> None:
        if self.chance.random() < self.crash_share:
            raise Crash

    def run(self, steps: int) -> None:
        """Raises Violation."""
        chance, actions = self.chance, self.actions()
        self.crash_share = chance.choice(self.crash_shares)
        self.full_share = chance.choice(self.full_shares)
        for _ in range(steps):
            try:
                if chance.random() < 0.03:
                    raise Crash
                self.let_time_pass()
                action = chance.choice(actions)
                action()
                self.tell(getattr(action, "__name__", ""))
            except Crash:
                self.fall_over()
                self.tell("falls over")
            except AerobeeError as error:
                self.tell(f"is refused: {error}")
            self.end_step()
        self.crash_share = self.full_share = 0
        self.tell("peace")
        self.come_to_rest()
