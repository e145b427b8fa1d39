"""A small file whose current content counts: secrets are replaced without a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from aerobee.runtime.errors import AerobeeError, InvalidArgument
from aerobee.runtime.log import log_event

LENGTH_MAX = 65_536
LOOK_INTERVAL_S = 1.0

T = TypeVar("T")

log = logging.getLogger(__name__)


class WatchedFile(Generic[T]):
    """What `parse` makes of a file's text. If a later content cannot be read, that is only logged,
    without the content."""

    def __init__(self, path: str, parse: Callable[[str], T], now_s: Callable[[], float]) -> None:
        """Raises InvalidArgument: the file cannot be read."""
        self._path = Path(path)
        self._parse = parse
        self._now_s = now_s
        self._looked_s = now_s()
        self._stamp = self._stamp_now()
        self._value = self._read()

    def __repr__(self) -> str:
        return f"WatchedFile({str(self._path)!r})"

    def value(self) -> T:
        """The current value; checks the file at most once a second."""
        now_s = self._now_s()
        if now_s - self._looked_s >= LOOK_INTERVAL_S:
            self._looked_s = now_s
            stamp = self._stamp_now()
            if stamp != self._stamp:
                self._stamp = stamp
                self._change()
        return self._value

    def _change(self) -> None:
        try:
            self._value = self._read()
        except AerobeeError as error:
            log_event(log, "file not read again", level=logging.ERROR, reason=error)
        else:
            log_event(log, "file read again", path=self._path)

    def _stamp_now(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self) -> T:
        try:
            data = self._path.read_bytes()
        except OSError as error:
            raise InvalidArgument(
                f"cannot read {self._path}: {error.strerror}; create the file or correct the path"
            ) from None
        if len(data) > LENGTH_MAX:
            raise InvalidArgument(f"{self._path} has more than {LENGTH_MAX} bytes")
        try:
            return self._parse(data.decode())
        except UnicodeDecodeError:
            raise InvalidArgument(f"{self._path} is no text") from None
        except InvalidArgument as error:
            raise InvalidArgument(f"{self._path}: {error}") from None
