"""What POP has finished becomes the group's committed offset a moment later.

This serves everything that asks for a group's progress: lag, retention, audits, and a member that
takes the queue over. Until then the offset journal is behind the truth, never ahead of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from aerobee.broker.groups.ownership import POPS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.pop.standing import Standing
from aerobee.runtime.errors import AerobeeError, Busy, NotWritable, ReplicaBehind, StoreFailed
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

COMMIT_INTERVAL_S: Final = 1.0
_AT_ONCE: Final = 200
_LATER: Final = (Busy, NotWritable, ReplicaBehind)
"""This master takes no commits now, but will soon."""


class PopCommits:
    """On the loop."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        standing: Callable[[GroupQueue], Standing | None],
        *,
        is_behind: Callable[[GroupQueue], bool],
    ) -> None:
        """`standing`: the confirmed state of a queue; `is_behind`: whether more is decided than
        confirmed, and so more will come."""
        self._offsets = offsets
        self._standing = standing
        self._is_behind = is_behind
        self._finished: dict[GroupQueue, None] = {}
        self._due = asyncio.Event()

    def note(self, key: GroupQueue) -> None:
        """Messages of the queue are finished, or about to be."""
        self._finished[key] = None
        self._due.set()

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        while True:
            await self._due.wait()
            await asyncio.sleep(COMMIT_INTERVAL_S)
            self._due.clear()
            await self.commit()

    async def commit(self) -> None:
        """Commit all that was noted. Raises StoreFailed."""
        keys, self._finished = list(self._finished), {}
        for number, key in enumerate(keys, start=1):
            try:
                self._commit(key)
            except StoreFailed:
                raise
            except AerobeeError as error:
                if isinstance(error, _LATER):
                    self.note(key)
                # Otherwise the queue or the role belongs to another, which commits it.
                log_event(
                    log,
                    "what POP has finished is not committed yet",
                    level=logging.DEBUG,
                    group=key.group,
                    topic=key.topic,
                    queue_id=key.queue_id,
                    reason=error,
                )
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def _commit(self, key: GroupQueue) -> None:
        standing = self._standing(key)
        is_open = standing is not None and standing.committed > (self._offsets.query(key) or 0)
        if standing is not None and is_open:
            self._offsets.commit(key, standing.committed, POPS)
        if is_open or self._is_behind(key):
            # Keep noting it until it is in effect: a commit that was not written, because this
            # master may not act, is written again although no other message of the queue is
            # finished.
            self.note(key)
