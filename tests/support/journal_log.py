"""A log in memory for the offset journal, with confirmed and flushed ends that tests move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from aerobee.broker.journal.records import JournalRecords

OTHER_BYTES = 100
"""The bytes between two records."""

Told = Callable[[bool], None]


@dataclass(frozen=True)
class Placed:
    base_queue_offset: int
    end: int


@dataclass
class MemoryLog:
    """Records by number; replicas of one group share the bodies that both have."""

    bodies: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    confirmed_end: int = 0
    flushed_end: int = 0
    begin: int = 0
    first: int = 0
    """Records below this are gone."""
    is_sync: bool = True
    """Confirms and flushes what is appended at once."""
    refusal: Exception | None = None
    failure: Exception | None = None
    """Why its owner ended the broker."""
    _confirming: list[tuple[int, Told]] = field(default_factory=list)
    _flushing: list[tuple[int, Told]] = field(default_factory=list)
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def records_end(self) -> int:
        return len(self.bodies)

    def append(self, body: bytes, *, ends_topic: str = "") -> Placed:
        if self.refusal is not None:
            raise self.refusal
        self.ends.append(self.end + OTHER_BYTES + len(body))
        self.bodies.append(body)
        if self.is_sync:
            self.confirm()
            self.flush()
        return Placed(len(self.bodies) - 1, self.end)

    def fail(self, error: Exception) -> None:
        self.failure = error

    def confirm(self, end: int | None = None) -> None:
        self.confirmed_end = self.end if end is None else end
        self._tell(self._confirming, self.confirmed_end)
        for advanced in self._listeners:
            advanced()

    def listen(self, advanced: Callable[[], None]) -> None:
        self._listeners.append(advanced)

    def flush(self) -> None:
        self.flushed_end = self.end
        self._tell(self._flushing, self.flushed_end)

    def _tell(self, waiting: list[tuple[int, Told]], end: int) -> None:
        while waiting and waiting[0][0] <= end:
            waiting.pop(0)[1](True)

    def when_confirmed(self, end: int, told: Told) -> None:
        self._confirming.append((end, told))
        self._tell(self._confirming, self.confirmed_end)

    def when_flushed(self, end: int, told: Told) -> None:
        self._flushing.append((end, told))
        self._tell(self._flushing, self.flushed_end)

    def position_of(self, queue_offset: int) -> int | None:
        if queue_offset >= len(self.ends):
            return None
        return self.ends[queue_offset] - len(self.bodies[queue_offset])

    async def read(self, queue_offset: int) -> JournalRecords:
        if queue_offset < self.first:
            return JournalRecords([], self.first)
        bodies = [
            (number, body)
            for number, body in enumerate(self.bodies[queue_offset : queue_offset + 3])
            if self.ends[queue_offset + number] <= self.confirmed_end
        ]
        found = [(queue_offset + number, body) for number, body in bodies]
        return JournalRecords(found, queue_offset + len(found))

    def copy(self) -> MemoryLog:
        """Another replica's log with the same bytes; nothing is known to be confirmed."""
        return MemoryLog(list(self.bodies), list(self.ends), begin=self.begin, first=self.first)

    def cut(self, records: int) -> None:
        """Remove the newest records."""
        del self.bodies[records:]
        del self.ends[records:]

    def remove_below(self, records: int) -> None:
        """As retention does it."""
        self.first = records
        self.begin = self.ends[records - 1] if records else 0
