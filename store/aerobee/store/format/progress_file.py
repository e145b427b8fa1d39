"""Our own small files in `config` that are not JSON: progress of POP, timers and schedules, and
which state of Apache's timer files is known to a journal.

    MAGIC crc32 \\n head \\n body \\n        popProgress, timerProgress, scheduleProgress:
                                            head and body are JSON
    crc32 crc32 \\n                         timerSeen
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from zlib import crc32

POP_PROGRESS: Final = "popProgress"
TIMER_PROGRESS: Final = "timerProgress"
TIMER_SEEN: Final = "timerSeen"
SCHEDULE_PROGRESS: Final = "scheduleProgress"
POP_MAGIC: Final = "AQPJ1"
TIMER_MAGIC: Final = "AQTP1"
SCHEDULE_MAGIC: Final = "AQSP1"
_SEEN: Final = re.compile(rb"[0-9a-f]{8} [0-9a-f]{8}\n")


def seal(magic: str, head: object, body: str) -> bytes:
    """A file of progress."""
    text = f"{json.dumps(head)}\n{body}"
    return f"{magic} {crc32(text.encode()):08x}\n{text}\n".encode()


def unseal(magic: str, data: bytes, subject: str) -> tuple[object, str]:
    """Head and body of a file of progress. `subject` is for errors.

    Raises:
        ValueError: the file is damaged, or another one.
    """
    head, _, text = data.decode().partition("\n")
    text = text.removesuffix("\n")
    if head != f"{magic} {crc32(text.encode()):08x}":
        raise ValueError(f"the file of {subject} is damaged")
    numbers, _, body = text.partition("\n")
    return json.loads(numbers), body


def _check_progress(magic: str, subject: str, data: bytes) -> None:
    _, body = unseal(magic, data, subject)
    if not isinstance(json.loads(body), list):
        raise ValueError(f"the file of {subject} has no entries")


def _check_seen(data: bytes) -> None:
    if not _SEEN.fullmatch(data):
        raise ValueError("the file of Apache's timer files is damaged")


CHECKS: Final[Mapping[str, Callable[[bytes], None]]] = {
    POP_PROGRESS: partial(_check_progress, POP_MAGIC, "messages in flight"),
    TIMER_PROGRESS: partial(_check_progress, TIMER_MAGIC, "timers' progress"),
    SCHEDULE_PROGRESS: partial(_check_progress, SCHEDULE_MAGIC, "schedules"),
    TIMER_SEEN: _check_seen,
}
"""By name in `config`: raises ValueError if the file is damaged."""
