"""What the person at the terminal is told while a client command runs.

Of what the libraries log, warnings and errors: one line each, the event first, then what it is
about, then the reason. The same is not said again within QUIET_S, even if seconds or offsets
differ; another broker, group or queue is something else. A traceback only of what is not Aerobee's
own, for that is a bug.

And what a command waits for: a short wait is not worth a line, a long one gets one, and another
when its reason changes. The clients know what is in the way; they are asked from time to time.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aerobee.cli.output import remark
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import EVENT_ATTRIBUTE, FIELDS_ATTRIBUTE
from aerobee.runtime.printable import printable

QUIET_S = 10.0
LINES_REMEMBERED = 100
PATIENCE_S = 3.0
LOOK_INTERVAL_S = 0.5
_IDS = frozenset({"request_id", "trace_id", "span_id"})
"""Of use beside a service's log, not here."""
_PLACES = frozenset({"group", "broker", "topic", "queue", "client_id"})
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_UNITS = {"s": " s", "ms": " ms", "bytes": " bytes"}


class NoticeHandler(logging.Handler):
    """Writes notices to standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said_s: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        line, subject = notice(record), _subject(record)
        said_s = self._said_s.get(subject)
        if said_s is not None and record.created - said_s < QUIET_S:
            return
        if len(self._said_s) >= LINES_REMEMBERED:
            self._said_s.clear()
        self._said_s[subject] = record.created
        remark(line)
        if record.exc_info and not record.name.startswith("aerobee"):
            for trace_line in logging.Formatter().formatException(record.exc_info).splitlines():
                remark(trace_line)


def notice(record: logging.LogRecord) -> str:
    """The event, then those of its fields that it does not name itself, then the reason."""
    event, fields = _event(record), _fields(record)
    told = {name: printable(str(value)) for name, value in fields.items() if name not in _IDS}
    reason = told.pop("reason", "")
    about = ", ".join(
        _named(name, value) for name, value in told.items() if value and not _names(event, value)
    )
    line = f"aerobee: {event} ({about})" if about else f"aerobee: {event}"
    error = record.exc_info[1] if record.exc_info else None
    for text in dict.fromkeys((reason, "" if error is None else str(error))):
        line += f": {text}" if text and text not in line else ""
    return line


def _subject(record: logging.LogRecord) -> str:
    """Equal for notices that say the same of the same, whatever their numbers are."""
    fields = _fields(record)
    places = [str(fields[name]) for name in sorted(_PLACES & fields.keys())]
    return " ".join([_NUMBER.sub("#", notice(record)), *places])


def _event(record: logging.LogRecord) -> str:
    return getattr(record, EVENT_ATTRIBUTE, None) or record.getMessage()


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, FIELDS_ATTRIBUTE, {})
    return fields


def _named(name: str, value: str) -> str:
    """`queues kept for 4.9 s` of a field `queues_kept_for_s`."""
    words, _, last = name.rpartition("_")
    unit = _UNITS.get(last, "") if words else ""
    return f"{(words if unit else name).replace('_', ' ')} {value}{unit}"


def _names(event: str, value: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", event) is not None


def show_notices() -> None:
    """From now on all logging of this process goes to NoticeHandler."""
    root = logging.getLogger()
    root.handlers[:] = [NoticeHandler()]
    root.setLevel(logging.WARNING)


class WaitNotice:
    """What one command waits for. To be asked to `look` at least every second."""

    def __init__(
        self,
        clock: Clock,
        obstacles: Callable[[], Sequence[str]],
        tell: Callable[[str], None] = remark,
    ) -> None:
        """`obstacles` says what is in the way at this moment, in sentences."""
        self._clock = clock
        self._obstacles = obstacles
        self._tell = tell
        self._told: tuple[str, ...] = ()
        self._since_s: float | None = None

    def look(self) -> None:
        """Tell what there is to tell; at most one line in PATIENCE_S."""
        now_s = self._clock.monotonic_s()
        obstacles = tuple(self._obstacles())
        if not obstacles:
            if self._told:
                self._tell("no longer waiting")
            self._told, self._since_s = (), None
            return
        if self._since_s is None:
            self._since_s = now_s
        if obstacles != self._told and now_s - self._since_s >= PATIENCE_S:
            self._tell(f"waiting: {'; '.join(obstacles)}")
            self._told, self._since_s = obstacles, now_s

    @contextmanager
    def silence(self, text: str, has_come: Callable[[], bool]) -> Iterator[None]:
        """Tell once that it waits for what has not come after PATIENCE_S inside, unless something
        is in the way, which is told anyway."""

        def look() -> None:
            if not has_come() and not self._obstacles():
                self._tell(text)

        timer = asyncio.get_running_loop().call_later(PATIENCE_S, look)
        try:
            yield
        finally:
            timer.cancel()

    async def run(self) -> None:
        """Look again and again; endless, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_INTERVAL_S)
