"""Batches with their producer's number that come again: what ingest asks, and of whom.

A producer that does not know what became of a batch sends it again with the same numbers. Usually
all of it is stored or nothing. After a crash the beginning alone may be, for the log ends where its
last whole record does; then the answer says how much, and the rest comes as a batch of its own.
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


def check_numbers(producer_id: int, sequence: int, count: int) -> None:
    """Raises InvalidArgument unless records can carry these numbers."""
    if producer_id >= PRODUCER_ID_END or sequence + count > SEQUENCE_END:
        raise InvalidArgument(
            f"producer {producer_id:x} cannot number {count} messages from {sequence} on: ids end "
            f"below {PRODUCER_ID_END}, numbers below {SEQUENCE_END}; go on with a new id"
        )
