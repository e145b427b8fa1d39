"""Turns Spark's pages of text about a failure into the actual error.

An error that one of our sources raised in a worker is raised again as itself, so that a cluster
that does not answer ends a run in the same way wherever it was asked.
"""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from aerobee.offset_audit.run.exit_codes import SparkFailed
from aerobee.runtime import errors
from aerobee.runtime.errors import AerobeeError

_RAISED = re.compile(r"(?P<kind>[A-Za-z_][\w.]*): (?P<text>.+)")
"""The last line of a traceback."""
_STATE = re.compile(r"\s*SQLSTATE: \w+$")
_OURS = "aerobee."
_TOLD_AS_THEY_ARE = (
    errors.InvalidArgument,
    errors.Unreachable,
    errors.DeadlineExceeded,
    errors.RegistryUnavailable,
    errors.NoBrokerAvailable,
)


def error_of(error: PySparkException, doing: str) -> AerobeeError:
    """The error to raise instead; `doing` begins the message unless the error says everything."""
    kind, text = _raised(error)
    for one in _TOLD_AS_THEY_ARE:
        if kind == f"{one.__module__}.{one.__name__}":
            return one(text)
    return SparkFailed(f"{doing} failed: {reason_of(error)}")


def reason_of(error: PySparkException) -> str:
    """The sentence that matters: Python's last line, if there is one."""
    kind, text = _raised(error)
    return text if not kind or kind.startswith(_OURS) else f"{kind.rpartition('.')[2]}: {text}"


def _raised(error: PySparkException) -> tuple[str, str]:
    """The class that was raised in Python, preferring ours, and its text."""
    lines = [_STATE.sub("", line.strip()) for line in str(error).splitlines()]
    lines = [line for line in lines if line]
    found = [match for line in reversed(lines) if (match := _RAISED.fullmatch(line))]
    ours = [match for match in found if match["kind"].startswith(_OURS)]
    for match in [*ours, *found]:
        return match["kind"], match["text"]
    return "", lines[0] if lines else type(error).__name__
