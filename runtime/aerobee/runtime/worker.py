"""Work that a task does whenever there is some.

    woken, or due by time -> work -> wait for more
                                  -> it failed: say why, once -> back off -> work

Owns: the loop around the work. It does not poll, loses no waking that comes during the work, and
says each trouble once, however often the work fails for the same reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aerobee.runtime.errors import AerobeeError, StoreFailed
from aerobee.runtime.log import log_event

Tell = Callable[[AerobeeError], None]


def warns(log: logging.Logger, event: str, **fields: object) -> Tell:
    """Says a worker's trouble as a warning in the log."""

    def tell(error: AerobeeError) -> None:
        log_event(log, event, level=logging.WARNING, error=None, **fields, reason=error)

    return tell


class Worker:
    """On the loop, while `run` runs."""

    def __init__(
        self,
        work: Callable[[], Awaitable[float | None]],
        tell: Tell,
        *,
        retry_s: float | Callable[[], float],
        retries_when_woken: bool = False,
        tells_at: int = 1,
        matters: Callable[[], bool] = lambda: True,
    ) -> None:
        """`work` does what is due and returns the seconds until more is; None: it will be woken;
        0: at once. AerobeeError: try again in `retry_s`, or already when woken if
        `retries_when_woken`.

        `tell` is called when the work has failed for the same reason so many times in a row,
        counting those where failures matter."""
        self._work = work
        self._tell = tell
        self._retry_s = retry_s
        self._retries_when_woken = retries_when_woken
        self._tells_at = tells_at
        self._matters = matters
        self._woken = asyncio.Event()
        self._trouble: str | None = None
        self._times = 0
        self.is_backing_off = False
        """The work failed, and is not tried again yet."""

    @property
    def is_woken(self) -> bool:
        """Whether there was a waking that the work has not begun to see."""
        return self._woken.is_set()

    def wake(self) -> None:
        """There is work, or there may be."""
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed, and all that is no AerobeeError."""
        while True:
            self._woken.clear()
            try:
                wait_s = await self._work()
            except StoreFailed:
                raise
            except AerobeeError as error:
                self._note(str(error), error)
                await self._back_off()
            else:
                self._trouble = None
                if wait_s != 0:
                    await self.rest(wait_s)

    async def rest(self, seconds: float | None) -> bool:
        """Until woken, or for so long; None: however long it takes. Returns whether it was woken.
        For work that itself waits for more."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        return True

    def _note(self, trouble: str, error: AerobeeError) -> None:
        if not self._matters():
            return
        if trouble != self._trouble:
            self._trouble, self._times = trouble, 0
        self._times += 1
        if self._times == self._tells_at:
            self._tell(error)

    async def _back_off(self) -> None:
        retry_s = self._retry_s() if callable(self._retry_s) else self._retry_s
        self.is_backing_off = True
        try:
            if self._retries_when_woken:
                await self.rest(retry_s)
            else:
                await asyncio.sleep(retry_s)
        finally:
            self.is_backing_off = False
