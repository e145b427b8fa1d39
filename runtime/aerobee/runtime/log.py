"""Structured logging: one line per event, a name and fields, as text or as JSON.

Owns: the two formatters and `configure_logging`, which only a composition root or the command line
calls; importing this file changes nothing. Libraries keep the standard library's loggers:

    log = logging.getLogger(__name__)
    log_event(log, "segment rolled", base=1073741824, bytes=1073741824)

An event's name is a fixed phrase that can be searched for; what varies is a field.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO

FIELDS_ATTRIBUTE = "event_fields"
"""Where a LogRecord carries its fields."""


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


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
        logger.log(level, event, exc_info=error, extra={FIELDS_ATTRIBUTE: fields}, stacklevel=2)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO broker.store segment rolled base=0 bytes=1024`."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_timestamp(record), record.levelname, _short(record.name), record.getMessage()]
        parts += [f"{name}={_text(value)}" for name, value in _fields(record).items()]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, the fields, and `traceback` if any."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        for name, value in _fields(record).items():
            # A field never hides what every line has.
            document[f"field_{name}" if name in document else name] = value
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False, default=str)


def configure_logging(
    *,
    log_format: LogFormat = LogFormat.TEXT,
    level: LogLevel = LogLevel.INFO,
    stream: TextIO | None = None,
) -> None:
    """Send all logging of this process to `stream` (default: standard error). Replaces handlers."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    for previous in root.handlers[:]:
        root.removeHandler(previous)
    root.addHandler(handler)
    root.setLevel(level.upper())


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, FIELDS_ATTRIBUTE, {})
    return fields


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _short(name: str) -> str:
    return name.removeprefix("aerobee.")


def _text(value: object) -> str:
    """Bare when it cannot be misread, else quoted as JSON, so that a line stays one line."""
    text = str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' "='):
        return text
    return json.dumps(text, ensure_ascii=False)
