"""An image of a journal: the whole state, written into the journal again.

Each entry says what will be true once the records before it are in effect. So the image changes
nothing for a reader of those records, and a reader that begins at the image ends up with the same
state.

Owns: when the next image is written: once the log has grown by the interval since the last one, so
that an idle log does not grow however large the image is; or when the log is about to lose what an
older image said.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.journal.state import JournalState, JournalTerm
from aerobee.broker.journal.writer import JournalWriter
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.waiting import SharedFuture

ENTRIES_PER_TURN = 256


class ImagedLog(Protocol):
    """What images need of the log that the journal is in."""

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...


class JournalImages:
    """On the loop. The journal calls `write_if_due` when an image may be due; others ask and
    wait."""

    def __init__(
        self, state: JournalState[Any], log: ImagedLog, clock: Clock, *, interval_bytes: int
    ) -> None:
        self._state = state
        self._log = log
        self._clock = clock
        self._interval_bytes = interval_bytes
        self._asked_begin = 0
        self._written_end = log.end
        """Where the log ended when this process began or completed its newest image, so that
        repeated restarts alone cause no image."""
        self._attempt: asyncio.Future[None] | None = None

    async def write_if_due(self, writer: JournalWriter[Any], term: JournalTerm[Any]) -> None:
        """Write an image if one is due. Raises as `write_image`."""
        attempt, self._attempt = self._attempt, None
        try:
            if self.is_due:
                await write_image(writer, term, self._log, self._clock)
                self._written_end = self._log.end
        except AerobeeError as error:
            self._asked_begin = 0
            if attempt is not None and not attempt.done():
                attempt.set_exception(error)
            raise
        finally:
            if attempt is not None and not attempt.done():
                attempt.set_result(None)

    @property
    def is_due(self) -> bool:
        """Whether another image is due."""
        begin = self._state.image_position
        is_old = self._log.end - max(begin, self._written_end) >= self._interval_bytes
        return is_old or begin < max(self._log.begin, self._asked_begin)

    def ask(self, begin: int) -> asyncio.Future[None]:
        """Request an image that begins at or after this log position. The future is done when the
        next attempt has ended, and raises what that raised."""
        self._asked_begin = max(self._asked_begin, begin)
        if self._attempt is None:
            self._attempt = SharedFuture()
            self._attempt.add_done_callback(_look_at)
        return self._attempt


async def write_image(
    writer: JournalWriter[Any], term: JournalTerm[Any], log: ImagedLog, clock: Clock
) -> None:
    """Returns once the whole image is confirmed and on the disk.

    Raises:
        NotMaster, NotWritable, Busy, StoreFailed: a part of it may be written, which does no harm.
    """
    writer.flush()
    position, first_offset = log.end, writer.next_offset
    for number, entry in enumerate(term.image(), 1):
        done = writer.add(entry, is_durable=False)
        # One record at a time: others can write in between, and little waits in memory.
        if number % ENTRIES_PER_TURN == 0:
            await asyncio.shield(done)
    await asyncio.shield(writer.add(ImageEnd(position, first_offset, clock.now_ms())))


def _look_at(attempt: asyncio.Future[None]) -> None:
    """Retrieve its exception: the caller may be gone when it fails."""
    if not attempt.cancelled():
        attempt.exception()
