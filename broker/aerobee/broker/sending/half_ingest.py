"""From batches of half messages to their answers.

Owns: nothing. Half messages of one frame are stored together if all of them are new, of one topic
and in order. Otherwise each is looked at by itself: one that is known is already stored, since with
two it would be unclear which of them a transaction refers to, and a different one with the same id
gets a transaction id of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Generic, Protocol, TypeVar

from aerobee.broker.counters import Counters
from aerobee.broker.sending.append import Appender
from aerobee.broker.sending.delays import WaitingBatch
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.halves import HalfMemory, half_batch
from aerobee.runtime.errors import AerobeeError, MessageIllegal
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch import BatchIllegal
from aerobee.store.format.checked_batch import CheckedBatch


class HalfMessages(Protocol):
    """An incoming batch, as far as it matters here."""

    @property
    def topic(self) -> str: ...

    @property
    def queue_id(self) -> int: ...

    @property
    def records(self) -> bytes | memoryview: ...

    @property
    def record_sizes(self) -> Sequence[int]: ...


class HalfReceipt(Protocol):
    """Its answer."""

    transaction_id: str


B = TypeVar("B", bound=HalfMessages)
R = TypeVar("R", bound=HalfReceipt)


class HalfIngest(Generic[B, R]):
    """Inside `with appender.publishing`."""

    def __init__(
        self,
        guard: Guard,
        appender: Appender,
        memory: HalfMemory,
        counters: Counters,
        *,
        checked: Callable[[str, bytes | memoryview, Sequence[int]], CheckedBatch],
        checked_waiting: Callable[[WaitingBatch], CheckedBatch],
        receipt: Callable[[B, Appended, int, int], R],
        refusal: Callable[[B, AerobeeError | BatchIllegal], R],
    ) -> None:
        """`checked` and `checked_waiting` raise BatchIllegal for what a client sent and for what
        would be stored. `receipt` and `refusal` make the answers."""
        self._guard = guard
        self._appender = appender
        self._memory = memory
        self._counters = counters
        self._checked = checked
        self._checked_waiting = checked_waiting
        self._receipt = receipt
        self._refusal = refusal

    def accept(self, batches: Sequence[B]) -> list[R]:
        """Store what is valid and new; the answers in the order of the batches."""
        receipts: list[R] = []
        for topic, group in groupby(batches, lambda batch: batch.topic):
            members = list(group)
            together = self._accept_together(topic, members) if len(members) > 1 else None
            receipts += together or [self._accept_one(topic, batch) for batch in members]
        return receipts

    def _accept_together(self, topic: str, batches: Sequence[B]) -> list[R] | None:
        """None: nothing was stored; each must be looked at by itself."""
        records = [batch.records for batch in batches]
        sizes = [list(batch.record_sizes) for batch in batches]
        if any(own != [len(data)] for own, data in zip(sizes, records, strict=True)):
            return None
        queue_ids = [batch.queue_id for batch in batches]
        memory = self._memory
        try:
            for queue_id in queue_ids:
                self._guard.check_send(topic, queue_id)
            memory.check_takes(len(batches))
            checked = self._checked(topic, b"".join(records), [size for (size,) in sizes])
            half = half_batch(checked, queue_ids)
            if len(dict(half.messages)) < len(batches) or not all(
                memory.standing(topic, message_id, each.content) == (message_id, None)
                for message_id, each in half.messages
            ):
                return None
            appended = self._append(half.batch, len(batches))
        except (BatchIllegal, AerobeeError):
            return None
        receipts: list[R] = []
        offset, position = appended.base_queue_offset, appended.base_physical_offset
        for batch, size, (message_id, each) in zip(
            batches, half.batch.sizes, half.messages, strict=True
        ):
            end = position + size
            own = Appended(offset, position, end, appended.store_timestamp_ms)
            memory.stored(each, own)
            receipts.append(self._answer(batch, own, message_id))
            offset, position = offset + 1, end
        return receipts

    def _accept_one(self, topic: str, batch: B) -> R:
        memory = self._memory
        try:
            self._guard.check_send(topic, batch.queue_id)
            memory.check_takes()
            checked = self._checked(topic, batch.records, batch.record_sizes)
            half = half_batch(checked, [batch.queue_id] * checked.count)
            if len(half.messages) != 1:
                raise MessageIllegal(
                    f"{len(half.messages)} messages of transactions are in one batch; send each "
                    "in a batch of its own"
                )
            ((message_id, message),) = half.messages
            transaction_id, appended = memory.standing(topic, message_id, message.content)
            if appended is None:
                if transaction_id != message_id:
                    half = half_batch(checked, [batch.queue_id], [transaction_id])
                appended = self._append(half.batch, 1)
                memory.stored(message._replace(transaction_id=transaction_id), appended)
            else:
                self._counters.duplicates_dropped += 1
        except (BatchIllegal, AerobeeError) as error:
            return self._refusal(batch, error)
        return self._answer(batch, appended, transaction_id)

    def _append(self, waiting: WaitingBatch, batches: int) -> Appended:
        """Raises BatchIllegal, AerobeeError: nothing was stored."""
        checked = self._checked_waiting(waiting)
        return self._appender.append(checked, queue_id=waiting.queue_id, batches=batches)

    def _answer(self, batch: B, appended: Appended, transaction_id: str) -> R:
        receipt = self._receipt(
            batch, appended, appended.base_queue_offset, appended.base_physical_offset
        )
        receipt.transaction_id = transaction_id
        return receipt
