"""A replica reads its journal, as far as it is confirmed, starting where its state ends.

Owns: turning records into applied entries. Gaps are skipped: a log begins where retention has left
it.
"""

from __future__ import annotations

import logging
from typing import Generic, Protocol, TypeVar

from aerobee.broker.journal.records import JournalRecords, read_body
from aerobee.broker.journal.state import JournalState
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

Entry = TypeVar("Entry")


class FollowedLog(Protocol):
    """What the follower needs of the log."""

    @property
    def records_end(self) -> int:
        """How many records the dispatched part of the log has, confirmed or not."""
        ...

    async def read(self, queue_offset: int) -> JournalRecords:
        """Some of the confirmed records, starting at this one. Raises AerobeeError."""
        ...


class JournalFollower(Generic[Entry]):
    """On the loop, one step after another."""

    def __init__(self, name: str, state: JournalState[Entry], journal_log: FollowedLog) -> None:
        self._name = name
        self._state = state
        self._log = journal_log

    @property
    def has_more(self) -> bool:
        """Whether the log has records that are not applied yet; they need not be confirmed."""
        return self._state.next_offset < self._log.records_end

    async def step(self) -> bool:
        """Apply some confirmed records; False if there are none.

        Raises:
            AerobeeError: they cannot be read now.
        """
        if not self.has_more:
            return False
        state = self._state
        begin = state.next_offset
        found = await self._log.read(begin)
        for queue_offset, body in found.bodies:
            if queue_offset > state.next_offset:
                self._skip_to(queue_offset)
            self._apply(queue_offset, body)
        if found.next_offset > state.next_offset:
            self._skip_to(found.next_offset)
        return state.next_offset > begin

    def _apply(self, queue_offset: int, body: bytes) -> None:
        try:
            entries = read_body(body, self._state.decode)
        except ValueError as error:
            log_event(
                log,
                "a record of a journal cannot be read",
                level=logging.ERROR,
                journal=self._name,
                record=queue_offset,
                reason=error,
            )
            entries = []
        self._state.apply(entries, queue_offset)

    def _skip_to(self, queue_offset: int) -> None:
        log_event(
            log,
            "a journal begins after the end of its snapshot",
            journal=self._name,
            snapshot_end=self._state.next_offset,
            journal_begin=queue_offset,
        )
        self._state.skip_to(queue_offset)
