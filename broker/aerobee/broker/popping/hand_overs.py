"""A queue consumed by POP goes to the group's members that ask for it under leases.

    idle -> what is finished, to the offset journal -> confirmed, and still idle -> POP ends

Invariant: POP gives up no queue that is in use. What was acknowledged out of order is finished for
the next owner, too, before POP forgets it; so nothing is delivered twice, and nothing is skipped.
Meanwhile a member that asks is refused, and asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from aerobee.broker.groups.ownership import POPS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.sent_back import FinishedBeyond
from aerobee.broker.pop.queue_state import QueueState
from aerobee.broker.pop.term import PopTerm
from aerobee.broker.popping.confirmed import until_confirmed
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

_TRIES_MAX: Final = 5
_RANGES_AT_ONCE: Final = 1_000


class HandOvers:
    """On the loop, on a master."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        clock: Clock,
        *,
        writer: Callable[[], PopTerm],
        is_used: Callable[[GroupQueue], bool],
    ) -> None:
        """`writer` as in `Pops`; `is_used`: whether a client of the group that uses POP lives or
        waits there."""
        self._offsets = offsets
        self._clock = clock
        self._writer = writer
        self._is_used = is_used
        self._running: dict[GroupQueue, asyncio.Task[None]] = {}

    def ask(self, key: GroupQueue) -> None:
        """A member wants the queue. It will be free soon, unless POP is in use."""
        if key not in self._running:
            task = asyncio.get_running_loop().create_task(
                self._hand_over(key), name="pop-hand-over"
            )
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))

    async def _hand_over(self, key: GroupQueue) -> None:
        try:
            for _ in range(_TRIES_MAX):
                if await self._try(key):
                    return
        except AerobeeError as error:
            log_event(
                log,
                "POP keeps a queue that a member requests; the member asks again",
                level=logging.WARNING,
                group=key.group,
                topic=key.topic,
                queue_id=key.queue_id,
                reason=error,
            )

    async def _try(self, key: GroupQueue) -> bool:
        """Whether there is nothing more to do. Raises AerobeeError."""
        term = self._writer()
        queue = term.queue(key)
        if queue is None or not self._is_idle(queue):
            return True
        standing = queue.standing.copy()
        await until_confirmed(term.newest)
        if standing.committed > (self._offsets.query(key) or 0):
            await until_confirmed(self._offsets.commit(key, standing.committed, POPS))
        finished = tuple(standing.finished)
        for first in range(0, len(finished), _RANGES_AT_ONCE):
            ranges = finished[first : first + _RANGES_AT_ONCE]
            writer = self._offsets.claimed(key, POPS)
            await until_confirmed(
                writer.finish_beyond(FinishedBeyond(key, ranges, self._clock.now_ms()))
            )
        if self._writer() is not term or term.queue(key) is not queue:
            return False
        if queue.standing != standing or not self._is_idle(queue):
            return False
        done = term.end(key)
        log_event(
            log,
            "POP gives up a queue that a member requests",
            group=key.group,
            topic=key.topic,
            queue_id=key.queue_id,
            offset=standing.committed,
        )
        await until_confirmed(done)
        return True

    def _is_idle(self, queue: QueueState) -> bool:
        queue.has_ready(self._clock.now_ms())  # advances the queue's time
        return not queue.in_flight and not self._is_used(queue.key)
