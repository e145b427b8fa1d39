"""Shared by the scenes of a journal's clients: a log in memory, and a writer of the journal.

The log is a list of records in append order. A crash or a fail-over between any two steps may cut
what was not confirmed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from aerobee.broker.journal.records import ImageEnd, body_of
from aerobee.broker.journal.state import JournalState, JournalTerm
from aerobee.runtime.errors import AerobeeError, Busy, NotMaster

R = TypeVar("R")


class Crash(Exception):
    """The process dies between two steps."""


class Broken(AssertionError):
    """A promise was broken."""


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


class JournalScene(Protocol):
    """What a writer needs of its scene."""

    chance: random.Random
    full_share: float
    """The share of records that find the disk full."""
    log: Log[Any]

    @property
    def state(self) -> JournalState[Any]: ...

    def journalled(self, entries: list[Any]) -> list[Any]:
        """The entries that get into the record; a variant may lose some."""
        ...


class SceneWriter:
    """A `JournalWriter` over the scene's log. `entries_max`: a record with this many is written
    when another entry is added."""

    def __init__(self, scene: JournalScene, *, entries_max: int = 1 << 30) -> None:
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
