"""Reads the offset journal as far as it is confirmed: what a slave does all the time, and a master
before its term begins.

Owns: the place where it reads, which is that of the state. Steps do not overlap; after `stop`
nothing more is applied, whatever is under way, until a step is asked for again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

from aerobee.broker.offsets.journal_records import JournalRecords, decode_body
from aerobee.broker.offsets.journal_state import OffsetJournalState
from aerobee.broker.offsets.journal_writer import JournalLog
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


class ReadableLog(JournalLog, Protocol):
    """The log that the journal lies in; aerobee.broker.offsets.journal_log has it."""

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def confirmed_end(self) -> int: ...

    @property
    def records_end(self) -> int:
        """How many records the journal has, confirmed or not."""
        ...

    def position_of(self, queue_offset: int) -> int | None:
        """Where a record lies in the log; None if there is none with this number."""
        ...

    async def read(self, queue_offset: int) -> JournalRecords:
        """Some of the confirmed records from this one on. Raises MqError."""
        ...


class OffsetJournalFollower:
    """See the module; on the loop."""

    def __init__(self, state: OffsetJournalState, journal_log: ReadableLog) -> None:
        self._state = state
        self._log = journal_log
        self._steps = 0
        self._stepped = asyncio.Event()

    async def step(self) -> bool:
        """Apply some confirmed records; False if there are none.

        Raises:
            MqError: they cannot be read now.
        """
        state = self._state
        begin = state.next_offset
        if begin >= self._log.records_end:
            self._stepped.set()
            return False
        self._steps += 1
        number = self._steps
        found = await self._log.read(begin)
        if number != self._steps:
            return True
        for queue_offset, body in found.bodies:
            if queue_offset > state.next_offset:
                self._skip_to(queue_offset)
            self._apply(queue_offset, body)
        if found.next_offset > state.next_offset:
            self._skip_to(found.next_offset)
        self._stepped.set()
        return state.next_offset > begin

    async def wait_step(self, timeout_s: float) -> None:
        """Until the next step has been done, or the time is over."""
        self._stepped.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._stepped.wait()

    def stop(self) -> None:
        """A step that is under way applies nothing."""
        self._steps += 1

    def _apply(self, queue_offset: int, body: bytes) -> None:
        try:
            entries = decode_body(body)
        except ValueError as error:
            log_event(
                log,
                "a record of the offset journal says nothing that can be read",
                level=logging.ERROR,
                record=queue_offset,
                reason=error,
            )
            entries = []
        self._state.apply(entries, queue_offset)

    def _skip_to(self, queue_offset: int) -> None:
        log_event(
            log,
            "the offset journal begins later than the snapshot ends",
            snapshot_end=self._state.next_offset,
            journal_begin=queue_offset,
        )
        self._state.skip_to(queue_offset)
