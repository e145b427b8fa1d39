"""Messages replaced by a copy: dead letters, and old messages that hold too much.

    the offset journal has the intent -> the copy is in the log -> POP's journal: finished

Owns: that each is moved only once at a time. A master that ends in between leaves an intent, from
which the next one knows that the message is finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aerobee.broker.groups.ownership import POPS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.sent_back import Way
from aerobee.broker.pop.requests import Move, MoveReason
from aerobee.broker.retries.send_backs import SendBacks, Sender
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.waiting import SharedFuture, shared
from aerobee.store.format.dead_letter_fields import Death
from aerobee.store.format.delayed_records import Delay
from aerobee.store.format.retry_records import shortened_death

_LATE_DELAY_MS: Final = 1_000
NO_REASON: Final = "", "the client gave it up"


class Moves:
    """On the loop."""

    def __init__(
        self,
        send_backs: SendBacks,
        clock: Clock,
        *,
        make_topics: Callable[[str], Awaitable[None]],
        on_moved: Callable[[GroupQueue, int], Awaitable[None]],
        on_kept: Callable[[GroupQueue, int], None],
    ) -> None:
        """`make_topics` makes a group's topics for what it sends back. One of the other callbacks
        is told the outcome for each message."""
        self._send_backs = send_backs
        self._clock = clock
        self._make_topics = make_topics
        self._on_moved = on_moved
        self._on_kept = on_kept
        self._running: dict[tuple[GroupQueue, int], SharedFuture[None]] = {}

    def begin(
        self, key: GroupQueue, move: Move, client_id: str = "", reason: tuple[str, str] = NO_REASON
    ) -> SharedFuture[None]:
        """Done when the message is finished; raises AerobeeError if it is not. `reason`: class and
        text of why a client gave it up."""
        task = asyncio.get_running_loop().create_task(
            self._carry_out(key, move, client_id, reason), name="pop-move"
        )
        task.add_done_callback(lambda _: self._running.pop((key, move.offset), None))
        task.add_done_callback(_look_at)
        outcome = self._running[key, move.offset] = shared(task)
        return outcome

    def running(self, key: GroupQueue, offset: int) -> SharedFuture[None] | None:
        """The running move of a message; None: there is none."""
        return self._running.get((key, offset))

    async def _carry_out(
        self, key: GroupQueue, move: Move, client_id: str, reason: tuple[str, str]
    ) -> None:
        try:
            await self._make_topics(key.group)
            sender = Sender(key, POPS, client_id)
            way = self._way(key, move, client_id, reason)
            (answer,) = await self._send_backs.replace(sender, [move.offset], lambda *_: way)
            if answer.error is not None:
                raise answer.error
            if answer.done is not None:
                await asyncio.shield(answer.done)
        except BaseException:
            self._on_kept(key, move.offset)
            raise
        await self._on_moved(key, move.offset)

    def _way(self, key: GroupQueue, move: Move, client_id: str, reason: tuple[str, str]) -> Way:
        now_ms = self._clock.now_ms()
        if move.reason is MoveReason.LATE:
            return Delay(deliver_ms=now_ms + _LATE_DELAY_MS)
        if move.reason is not MoveReason.FORWARDED:
            reason = "", f"it was not acknowledged in any of {move.attempts} deliveries"
        return shortened_death(Death(key.group, move.attempts, now_ms, *reason, client_id))


def _look_at(task: asyncio.Task[None]) -> None:
    """A move that nobody waits for is retried by the next poll."""
    if not task.cancelled():
        error = task.exception()
        if error is not None and not isinstance(error, AerobeeError):
            raise error
