"""Batches with their producer's number that come again: what ingest asks, and of whom.

A producer that does not know what became of a batch sends it again with the same numbers. Usually
all of it is stored or nothing. After a crash the beginning alone may be, for the log ends where its
last whole record does; then the rest is appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aerobee.runtime.errors import InvalidArgument
from aerobee.store_format.producer_number import PRODUCER_ID_END, SEQUENCE_END


class Appended(Protocol):
    """Where the store put a batch."""

    @property
    def base_queue_offset(self) -> int: ...

    @property
    def base_physical_offset(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def store_timestamp_ms(self) -> int: ...


class Standing(Protocol):
    """Of a batch, how many records from its first one on are stored, and where that one is."""

    @property
    def stored_count(self) -> int: ...

    @property
    def queue_offset(self) -> int: ...


class ProducerMemory(Protocol):
    """What the store remembers of producers; see aerobee.broker.store.producers.producers."""

    def standing(
        self, topic: str, queue_id: int, producer_id: int, sequence: int, count: int
    ) -> Standing: ...

    def place(self, topic: str, queue_id: int, queue_offset: int, count: int) -> Appended: ...


class IncomingBatch(Protocol):
    """Records of one queue as they came; aerobee.v1.RecordBatch is one."""

    @property
    def sequence(self) -> int: ...

    @property
    def topic(self) -> str: ...

    @property
    def queue_id(self) -> int: ...

    @property
    def records(self) -> bytes: ...

    @property
    def record_sizes(self) -> Sequence[int]: ...

    @property
    def timeout_ms(self) -> int: ...

    @property
    def skip_wait(self) -> bool: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_sequence(self) -> int: ...


class Rest:
    """A batch without its first records."""

    def __init__(self, batch: IncomingBatch, count: int) -> None:
        sizes = batch.record_sizes
        self.sequence = batch.sequence
        self.topic = batch.topic
        self.queue_id = batch.queue_id
        self.records = batch.records[sum(sizes[:count]) :]
        self.record_sizes: Sequence[int] = sizes[count:]
        self.timeout_ms = batch.timeout_ms
        self.skip_wait = batch.skip_wait
        self.producer_id = batch.producer_id
        self.producer_sequence = batch.producer_sequence + count


def check_numbers(producer_id: int, sequence: int, count: int) -> None:
    """Raises InvalidArgument unless records can carry these numbers."""
    if producer_id >= PRODUCER_ID_END or sequence + count > SEQUENCE_END:
        raise InvalidArgument(
            f"producer {producer_id:x} cannot number {count} messages from {sequence} on: ids end "
            f"below {PRODUCER_ID_END}, numbers below {SEQUENCE_END}; go on with a new id"
        )
