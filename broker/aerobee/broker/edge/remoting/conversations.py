"""What this broker asks connected clients, and waits for.

Owns: how many of its questions one client may leave unanswered.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.remoting_core.errors import ConnectionEnded
from aerobee.runtime.errors import Busy, DeadlineExceeded, InvalidArgument, Unreachable

OPEN_MAX: Final = 64
"""Unanswered questions of one client."""


class Conversations:
    """On the loop."""

    def __init__(self) -> None:
        self._open: Counter[Connection] = Counter()

    async def ask(self, connection: Connection, question: Command, timeout_s: float) -> Command:
        """The client's answer.

        Raises:
            Busy: it has not answered many earlier ones, or reads nothing.
            Unreachable: it is gone.
            DeadlineExceeded.
            InvalidArgument: the question fits no frame.
        """
        if connection.is_paused or self._open[connection] >= OPEN_MAX:
            raise Busy(f"client {connection.peer} does not read what it is asked; try again later")
        self._open[connection] += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await connection.ask(question)
        except TimeoutError:
            raise DeadlineExceeded(
                f"client {connection.peer} did not answer within {timeout_s:g} s"
            ) from None
        except ConnectionEnded as error:
            raise Unreachable(str(error)) from None
        except ValueError as error:
            raise InvalidArgument(f"the client cannot be asked that: {error}") from None
        finally:
            self._open[connection] -= 1
            if not self._open[connection]:
                del self._open[connection]
