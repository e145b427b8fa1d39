"""Messages that wait for the end of their transaction keep the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aerobee.broker.retention.holds import Hold, Need, Upkeep
from aerobee.broker.sending.durability import Durability
from aerobee.broker.transactions.follower import ASIDES, HALVES, TransactionFollower
from aerobee.broker.transactions.pending import PendingHalves
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_ledger import Candidate
from aerobee.store.engine.retention.unread_search import QueueReaders

FLUSH_TIMEOUT_S: Final = 3.0


class TransactionsHold(Hold):
    """On the loop, on every replica. Half messages are stored again while they are checked, so none
    holds the log for longer than its checks take."""

    def __init__(
        self,
        pending: PendingHalves,
        aside: PendingHalves,
        follower: TransactionFollower,
        store: MessageStore,
        durability: Durability,
    ) -> None:
        self._pending = pending
        self._aside = aside
        self._follower = follower
        self._store = store
        self._durability = durability
        self._losing: list[QueueReaders] = []

    async def need(self, candidate: Candidate, upkeep: Upkeep) -> Need | None:
        if not self._follower.has_all:
            return Need(candidate.base, "transactions are there, and are still being read")
        self._losing = []
        self._follower.look_at_begin()
        need: Need | None = None
        for state, queue in ((self._pending, HALVES), (self._aside, ASIDES)):
            oldest = state.oldest
            if oldest is None or oldest.position >= candidate.end:
                continue
            self._losing.append(QueueReaders(*queue, {"open transactions": oldest.offset}))
            if need is None or oldest.position < need.position:
                what = "is open" if state is self._pending else "was set aside"
                need = Need(
                    oldest.position,
                    f"transaction {oldest.transaction_id} of topic {oldest.topic} {what}, which "
                    f"keeps the log from offset {oldest.position} on: end it, or remove it with "
                    "`aerobee cluster clean --unread`",
                    is_unread=True,
                )
        if need is not None:
            return need
        # A half message must not come back after a power cut that lost its end.
        self._durability.request_flush()
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self._durability.flushed.wait(self._store.appended_end, float("inf"))
        except TimeoutError:
            return Need(candidate.base, "transactions have ended there, and the disk is behind")
        return None

    def losing(self) -> Sequence[QueueReaders]:
        return self._losing
