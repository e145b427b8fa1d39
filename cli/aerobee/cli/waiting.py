"""What a command waits for, told on standard error: nobody shall have to guess why nothing comes.

Owns: when that is said. What is in the way is for the clients to know; they are asked from time to
time. A short wait is nobody's concern, a long one is told once, and again when it is for something
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from aerobee.cli.output import remark
from aerobee.runtime.clock import Clock

PATIENCE_S = 3.0
LOOK_INTERVAL_S = 0.5


class WaitNotice:
    """Remarks of one command. It is to `look` at least every second."""

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
                self._tell("it goes on")
            self._told, self._since_s = (), None
            return
        if self._since_s is None:
            self._since_s = now_s
        if obstacles != self._told and now_s - self._since_s >= PATIENCE_S:
            self._tell(f"waiting: {'; '.join(obstacles)}")
            self._told, self._since_s = obstacles, now_s

    async def run(self) -> None:
        """Look again and again; endless, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_INTERVAL_S)
