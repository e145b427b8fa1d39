"""Says something to many clients, soon, and to a limited number of them in each turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection

TOLD_AFTER_S: Final = 0.02
"""What happens together is told once."""
TOLD_PER_TURN: Final = 128

ToTell = Iterator[tuple[Connection, Command]]


class Teller:
    """On the loop. Nothing is answered."""

    def __init__(self, is_due: Callable[[], bool], to_tell: Callable[[], ToTell]) -> None:
        """`to_tell` takes what is due now; it may be due anew while that is told."""
        self._is_due = is_due
        self._to_tell = to_tell
        self._is_telling = False

    def soon(self) -> None:
        """Something may be due."""
        if self._is_due() and not self._is_telling:
            self._is_telling = True
            asyncio.get_running_loop().call_later(TOLD_AFTER_S, self._tell_some)

    def _tell_some(self, left: ToTell | None = None) -> None:
        left = self._to_tell() if left is None else left
        for _ in range(TOLD_PER_TURN):
            found = next(left, None)
            if found is None:
                self._is_telling = False
                self.soon()
                return
            connection, said = found
            connection.tell(said)
        asyncio.get_running_loop().call_soon(self._tell_some, left)
