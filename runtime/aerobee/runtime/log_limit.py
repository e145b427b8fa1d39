"""A repeating event must not fill the disk: at most this many of its lines are written per second.

Owns: the counts. An event is a logger, a level, a text, and its subject: trouble in one broker
group does not hide another's. The first lines in a second pass unchanged; the rest are held back,
and at the end of the second one line stands for all of them: the last one, with their number in the
field `repeated`. So nothing is lost uncounted: a line without `repeated` stands for one event. An
exception is identified by its type and where it was raised, so no bug hides another.

Pure: its owner decides when to write what is due (see `EventHandler`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from aerobee.runtime.clock import Clock

FIELDS_ATTRIBUTE = "event_fields"
"""The LogRecord attribute that holds the fields."""
REPEATED_FIELD = "repeated"
OBJECT_FIELDS = ("group", "topic", "broker", "broker_id", "replica")
"""Fields that identify the subject of an event."""
WINDOW_S = 1.0
EVENTS_MAX = 1_024
"""How many events are distinguished per second; the texts of events are fixed, so there are about
as many as logging calls in the code, times their subjects. Further ones share a count."""

_Event = tuple[str, int, str, tuple[str, ...]]


@dataclass(slots=True)
class _Window:
    begin_s: float
    lines: int = 0
    held_back: int = 0
    last: logging.LogRecord | None = None


@dataclass(frozen=True, slots=True)
class Collapsed:
    """The last of several similar events, and how many it stands for."""

    record: logging.LogRecord
    repeated: int


class RepeatLimit:
    """Counts lines by event and second. Not thread-safe: its owner has a lock."""

    def __init__(self, clock: Clock, per_second_max: int) -> None:
        """`per_second_max`: lines of one event in a second; 0: unlimited."""
        self._clock = clock
        self._per_second_max = per_second_max
        self._windows: dict[_Event, _Window] = {}
        self._holding: dict[_Event, _Window] = {}

    def passes(self, record: logging.LogRecord) -> bool:
        """Whether the line is to be written now; otherwise it is counted. Call `take_due` first."""
        if self._per_second_max == 0:
            return True
        now_s = self._clock.monotonic_s()
        event = self._event_of(record, now_s)
        window = self._windows.get(event)
        if window is None or now_s - window.begin_s >= WINDOW_S:
            window = self._windows[event] = _Window(now_s)
        if window.lines < self._per_second_max:
            window.lines += 1
            return True
        window.held_back += 1
        window.last = record
        self._holding[event] = window
        return False

    def take_due(self) -> list[Collapsed]:
        """What was held back in seconds that have ended."""
        if not self._holding:
            return []
        now_s = self._clock.monotonic_s()
        return self._take(
            [event for event, window in self._holding.items() if now_s - window.begin_s >= WINDOW_S]
        )

    def take_all(self) -> list[Collapsed]:
        """Everything that was held back; for the end."""
        return self._take(list(self._holding))

    def due_in_s(self) -> float | None:
        """Seconds until `take_due` has something; None: nothing is held back."""
        if not self._holding:
            return None
        first_s = min(window.begin_s for window in self._holding.values())
        return max(0.0, first_s + WINDOW_S - self._clock.monotonic_s())

    def _take(self, events: list[_Event]) -> list[Collapsed]:
        taken = []
        for event in events:
            window = self._holding.pop(event)
            assert window.last is not None, "what holds back has held back something"
            taken.append(Collapsed(window.last, window.held_back))
            window.held_back, window.last = 0, None
        return taken

    def _event_of(self, record: logging.LogRecord, now_s: float) -> _Event:
        fields = getattr(record, FIELDS_ATTRIBUTE, {})
        about = tuple(str(fields.get(name, "")) for name in OBJECT_FIELDS)
        event = (record.name, record.levelno, str(record.msg), (*about, *_raised(record)))
        if event in self._windows or len(self._windows) < EVENTS_MAX:
            return event
        for old, window in list(self._windows.items()):
            if now_s - window.begin_s >= WINDOW_S and old not in self._holding:
                del self._windows[old]
        return event if len(self._windows) < EVENTS_MAX else ("", record.levelno, "", ())


def _raised(record: logging.LogRecord) -> tuple[str, ...]:
    """The type of a line's exception, and where it was raised."""
    exception = record.exc_info[1] if record.exc_info else None
    if exception is None:
        return ()
    place = exception.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return (type(exception).__qualname__,)
    code = place.tb_frame.f_code
    return (type(exception).__qualname__, f"{code.co_filename}:{place.tb_lineno}")
