"""Structured logging: one line per event, a name and fields, as text or as JSON.

Owns: the two formatters, the handler, and `configure_logging`, which only a composition root or the
command line calls; importing this file changes nothing. Libraries keep the standard library's
loggers:

    log = logging.getLogger(__name__)
    log_event(log, "segment rolled", base=1073741824, bytes=1073741824)

An event's name is a fixed phrase that can be searched for; whatever varies is a field. The text of
a record has both, so that handlers of other libraries also show the fields. The ids of the call
that is being served are fields of every line (see `call_context`). The content of a message is
never a field; for bytes or a protobuf message, the line shows only the length.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from aerobee.runtime.call_context import current_fields
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.log_config import LogConfig, LogFormat, LogLevel
from aerobee.runtime.log_limit import FIELDS_ATTRIBUTE, REPEATED_FIELD, Collapsed, RepeatLimit
from aerobee.runtime.printable import printable, printable_json

__all__ = [
    "FIELDS_ATTRIBUTE",
    "EventHandler",
    "JsonFormatter",
    "LogConfig",
    "LogFormat",
    "LogLevel",
    "TextFormatter",
    "configure_logging",
    "log_event",
]

EVENT_ATTRIBUTE = "event_name"
"""The LogRecord attribute that holds the event without fields."""
FIELD_CHARACTERS_MAX = 4_096
"""Longer texts are cut, so that lines are bounded."""


def log_event(
    logger: logging.Logger,
    event: str,
    /,
    *,
    level: int = logging.INFO,
    error: BaseException | None = None,
    **fields: object,
) -> None:
    """Log one event with its fields; `error` adds the exception and its traceback."""
    if logger.isEnabledFor(level):
        for name, value in (*_ids_of_errors(fields, error), *current_fields().items()):
            # The line's own fields take precedence over those of the call.
            fields.setdefault(name, value)
        extra = {FIELDS_ATTRIBUTE: fields, EVENT_ATTRIBUTE: event}
        phrase = event.replace("%", "%%") + "%s"
        logger.log(level, phrase, _Facts(fields), exc_info=error, extra=extra, stacklevel=2)


class _Facts:
    """Fields formatted as text when a foreign handler writes the line, so that they appear with
    other logging configurations, or with none."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        return "".join(f" {name}={_text(value)}" for name, value in self._fields.items())


def _ids_of_errors(
    fields: Mapping[str, object], error: BaseException | None
) -> Iterator[tuple[str, str]]:
    """The error of a call has the call's id, which is also in the other side's log."""
    for value in (error, *fields.values()):
        if isinstance(value, AerobeeError) and value.request_id:
            yield "request_id", value.request_id


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO broker.store segment rolled base=0 bytes=1024`."""

    def format(self, record: logging.LogRecord) -> str:
        event = printable(_event(record))
        parts = [_timestamp(record), record.levelname, _short(record.name), event]
        parts += [f"{name}={_text(value)}" for name, value in _fields(record).items()]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + printable(self.formatException(record.exc_info), keep="\n")
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, event, the fields, and `traceback` if any."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "event": _event(record),
        }
        for name, value in _fields(record).items():
            # A field never hides what every line has.
            document[f"field_{name}" if name in document else name] = _plain(value)
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(document, ensure_ascii=False, default=str))


class EventHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream; similar events beyond a rate become one line with their count.

    What was held back is written once its second is over: by the next line, whatever it is, or by a
    timer thread, which runs only while something is held back.
    """

    def __init__(self, stream: TextIO, limit: RepeatLimit) -> None:
        super().__init__(stream)
        self._limit = limit
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self._write(self._limit.take_due())
        if self._limit.passes(record):
            super().emit(record)
        elif self._timer is None:
            self._wait()

    def close(self) -> None:
        """Writes what was held back."""
        with self._locked():
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._write(self._limit.take_all())
        super().close()

    def _locked(self) -> threading.RLock:
        assert self.lock is not None, "a handler has a lock"
        return self.lock

    def _wait(self) -> None:
        delay_s = self._limit.due_in_s()
        if delay_s is None:
            self._timer = None
            return
        self._timer = threading.Timer(delay_s, self._on_time)
        self._timer.name = "log-repeats"
        self._timer.daemon = True
        self._timer.start()

    def _on_time(self) -> None:
        with self._locked():
            if self._timer is threading.current_thread():
                self._write(self._limit.take_due())
                self._wait()

    def _write(self, collapsed: list[Collapsed]) -> None:
        for each in collapsed:
            line = copy.copy(each.record)
            fields = {**_fields(line), REPEATED_FIELD: each.repeated}
            setattr(line, FIELDS_ATTRIBUTE, fields)
            super().emit(line)


def configure_logging(config: LogConfig | None = None, *, stream: TextIO | None = None) -> None:
    """Send all logging of this process to `stream` (default: standard error).

    Replaces the previous configuration, which first writes what it held back. No line logged by
    another thread in the meantime is lost or written twice.
    """
    config = config or LogConfig()
    limit = RepeatLimit(SystemClock(), config.repeats_per_s_max)
    handler = EventHandler(sys.stderr if stream is None else stream, limit)
    handler.setFormatter(JsonFormatter() if config.format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    before = root.handlers[:]
    root.handlers[:] = [handler]  # in one step: there is always exactly one handler
    root.setLevel(config.level.upper())
    for previous in before:
        if isinstance(previous, EventHandler):
            previous.close()


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, FIELDS_ATTRIBUTE, {})
    return fields


def _event(record: logging.LogRecord) -> str:
    """The bare event for our lines; the text for lines of other libraries."""
    event: str | None = getattr(record, EVENT_ATTRIBUTE, None)
    return record.getMessage() if event is None else event


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _short(name: str) -> str:
    return name.removeprefix("aerobee.")


def _plain(value: object) -> object:
    """As JSON: anything other than numbers and their containers becomes text of bounded length."""
    if value is None or isinstance(value, bool | int | float):
        return value
    # A named tuple with its own text form, such as a queue, is text.
    says_itself = isinstance(value, tuple) and type(value).__str__ is not object.__str__
    if isinstance(value, list | tuple | set | frozenset) and not says_itself:
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if hasattr(value, "SerializeToString"):
        return f"<{type(value).__name__}>"
    text = str(value)
    if not text and isinstance(value, BaseException):
        # Takes the place of an empty text: a line that gives a reason must show one.
        text = "no answer in time" if isinstance(value, TimeoutError) else type(value).__name__
    if len(text) > FIELD_CHARACTERS_MAX:
        return f"{text[:FIELD_CHARACTERS_MAX]}... ({len(text)} characters)"
    return text


def _text(value: object) -> str:
    """Unquoted if it cannot be misread, otherwise quoted as JSON, so that a line stays one line."""
    text = str(_plain(value))
    if text and text.isprintable() and not any(mark in text for mark in ' "='):
        return text
    return printable_json(json.dumps(text, ensure_ascii=False))
