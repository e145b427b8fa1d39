"""Feeds what is confirmed in the topics of transactions to the state, on every replica.

Owns: where reading continues. Each turn of the loop takes a bounded part of a queue. It continues
when more is confirmed, and after a failure; nothing here polls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from aerobee.broker.reading.confirmed_records import ConfirmedReader, ConfirmedRecords
from aerobee.broker.reading.handed import Handed
from aerobee.broker.sending.halves import HALF_QUEUE
from aerobee.broker.transactions.op_messages import OpMessage
from aerobee.broker.transactions.pending import PendingHalves
from aerobee.runtime.log import log_event
from aerobee.runtime.worker import Worker, warns
from aerobee.store.engine.errors import EntryMismatch
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.record_layout import RecordCorrupt
from aerobee.store.format.transaction_records import (
    ASIDE_TOPIC,
    OP_TOPIC,
    HalfIllegal,
    HalfMessage,
    half_of,
    is_op_of_aside,
    op_of,
)

log = logging.getLogger(__name__)

READER: Final = "transactions"
STEP_BYTES: Final = 128 * 1024
STEP_RECORDS: Final = 256
RETRY_S: Final = 1.0
HALVES: Final[QueueName] = (HALF_TOPIC, HALF_QUEUE)
OPS: Final[QueueName] = (OP_TOPIC, HALF_QUEUE)
ASIDES: Final[QueueName] = (ASIDE_TOPIC, HALF_QUEUE)


class TransactionFollower:
    """On the loop, while `run` runs."""

    def __init__(
        self,
        pending: PendingHalves,
        aside: PendingHalves,
        reader: ConfirmedReader,
        store: MessageStore,
        *,
        handed_halves: Handed[HalfMessage],
        handed_ops: Handed[OpMessage],
        on_followed: Callable[[], None],
    ) -> None:
        """`handed_...`: what this broker has written itself. `on_followed` is called when the state
        has changed."""
        self._handed_halves = handed_halves
        self._handed_ops = handed_ops
        self._pending = pending
        self._aside = aside
        self._reader = reader
        self._store = store
        self._on_followed = on_followed
        self._worker = Worker(
            self._follow, warns(log, "transactions cannot be followed"), retry_s=RETRY_S
        )

    @property
    def has_all(self) -> bool:
        """Whether the state has everything that consumers could see in these topics."""
        bounds = self._store.queues.bounds
        return (
            self._pending.next_half >= bounds(*HALVES).max_offset
            and self._pending.next_op >= bounds(*OPS).max_offset
            and self._aside.next_half >= bounds(*ASIDES).max_offset
        )

    def on_grown(self, names: Iterable[QueueName]) -> None:
        """Queues of the store have received messages."""
        if not {HALVES, OPS, ASIDES}.isdisjoint(names):
            self._worker.wake()

    def on_confirmed(self) -> None:
        """More of the log is confirmed."""
        if not self.has_all:
            self._worker.wake()

    def look_at_begin(self) -> None:
        """The log may have lost waiting messages through an operator's command."""
        for state, queue in ((self._pending, HALVES), (self._aside, ASIDES)):
            low = self._store.queues.bounds(*queue).min_offset
            for half in state.lose_before(low):
                _tell("a half message was removed undecided", half.offset, half.transaction_id)

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        await self._worker.run()

    async def _follow(self) -> None:
        """All that is confirmed. Raises AerobeeError."""
        while await self._feed_part():
            self._on_followed()
            await asyncio.sleep(0)  # let others run

    async def _feed_part(self) -> bool:
        """Feed a part of what is new; False if there is nothing. Raises AerobeeError."""
        self.look_at_begin()
        if self._take_handed():
            return True
        read_halves = await self._read_halves(self._pending, HALVES)
        read_asides = await self._read_halves(self._aside, ASIDES)
        return await self._read_ops() or read_halves or read_asides

    def _take_handed(self) -> bool:
        """What need not be read; False: nothing."""
        pending, confirmed_end = self._pending, self._reader.confirmed_end
        taken = 0
        while taken < STEP_RECORDS:
            half = self._handed_halves.take(pending.next_half, confirmed_end)
            if half is not None:
                pending.read_half(half)
            op = self._handed_ops.take(pending.next_op, confirmed_end)
            if op is not None:
                pending.read_op(pending.next_op, op.offsets, op.outcome)
                taken += len(op.offsets)
            if half is None and op is None:
                break
            taken += 1
        return taken > 0

    async def _read_halves(self, pending: PendingHalves, queue: QueueName) -> bool:
        begin = pending.next_half
        if queue is HALVES and self._handed_halves.begins_after(begin) == 0:
            return False  # it is not confirmed yet
        found = await self._read(queue, begin)
        for record in found.records:
            try:
                if queue is ASIDES and is_op_of_aside(record):
                    pending.read_op(record.queue_offset, *op_of(record))
                    pending.skip_half(record.queue_offset)
                else:
                    pending.read_half(half_of(record))
            except (HalfIllegal, RecordCorrupt) as error:
                _tell(
                    "a record among the half messages has another format",
                    record.queue_offset,
                    str(error),
                )
                pending.skip_half(record.queue_offset)
        if found.next_offset > pending.next_half:
            pending.skip_half(found.next_offset - 1)
        return pending.next_half > begin

    async def _read_ops(self) -> bool:
        pending, begin = self._pending, self._pending.next_op
        if self._handed_ops.begins_after(begin) == 0:
            return False  # it is not confirmed yet
        found = await self._read(OPS, begin)
        for record in found.records:
            pending.read_op(record.queue_offset, *op_of(record))
        if found.next_offset > pending.next_op:
            pending.next_op = found.next_offset
        return pending.next_op > begin

    async def _read(self, queue: QueueName, offset: int) -> ConfirmedRecords:
        if offset >= self._store.queues.bounds(*queue).max_offset:
            return ConfirmedRecords([], offset, False)
        for count in (STEP_RECORDS, 1):
            try:
                return await self._reader.read(
                    *queue, offset, max_bytes=STEP_BYTES, max_records=count
                )
            except EntryMismatch as error:
                damage = str(error)
        _tell("a record of transactions is damaged", offset, damage)
        return ConfirmedRecords([], offset + 1, False)


def _tell(event: str, offset: int, reason: str) -> None:
    log_event(log, event, level=logging.ERROR, offset=offset, reason=reason)
