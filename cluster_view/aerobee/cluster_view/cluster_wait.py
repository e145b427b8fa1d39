"""A question that is repeated, because a cluster may be started after its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

ASK_PAUSE_S = 0.2
WARN_AFTER_S = 1.0
"""A wait for a cluster that lasts longer than this is logged."""


class ClusterWait:
    """The time limit of one question. The caller asks, and logs with fields of its own."""

    def __init__(self, wait_s: float, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._end_s = now_s() + wait_s
        self._warn_s = now_s() + WARN_AFTER_S

    @property
    def left_s(self) -> float:
        """Time left, for the log."""
        return round(self._end_s - self._now_s(), 1)

    def is_over(self) -> bool:
        """Whether there is no time to ask again."""
        return self._now_s() + ASK_PAUSE_S >= self._end_s

    def is_long(self) -> bool:
        """Whether to warn now; once."""
        if self._now_s() < self._warn_s:
            return False
        self._warn_s = self._end_s
        return True

    async def pause(self) -> None:
        """Wait before asking again."""
        await asyncio.sleep(ASK_PAUSE_S)
