"""A client belongs to the process that opened it.

The child of a `fork` has a copy of an open client but none of the threads that move its bytes: a
call would never end. So calls are refused at once.
"""

from __future__ import annotations

import os

from aerobee.runtime.errors import AerobeeError


class UsedAfterFork(AerobeeError):
    """An open client was used in a child of the process that opened it; raised by clients only."""

    __module__ = "aerobee.errors"


class OwnProcess:
    """The process in which this was made."""

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        """`what` was opened, in the user's terms."""
        self._what = what
        self._pid = os.getpid()

    @property
    def is_left(self) -> bool:
        """Whether this runs in a child of that process."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raises UsedAfterFork in a child."""
        if self.is_left:
            raise UsedAfterFork(
                f"this {self._what} was opened in process {self._pid} and cannot be used in its "
                f"child {os.getpid()}: open one in each process, after the fork"
            )
