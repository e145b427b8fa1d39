"""Who sent a record, and its sequence number, so that a record that arrives twice is stored once.

The number is in the field in which prepared messages keep their transaction's offset, which
ordinary messages do not use: the producer's id in the upper 40 bits, and in the lower 24 the number
of the record among all that the producer sent to the queue. 0: none. Records that take part in a
transaction never have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from aerobee.store.format.record_arrays import Int64Array

SEQUENCE_BITS: Final = 24
SEQUENCE_END: Final = 1 << SEQUENCE_BITS
PRODUCER_ID_END: Final = 1 << 40
BROKER_PRODUCER_IDS: Final = 0xFFFF << 24
"""From here on, ids are those under which a broker appends its own copies: 2**24 of them. A client
that happens to draw one does no harm, as with any other id that is not its own."""
_SIGN: Final = 1 << 63


class ProducerRun(NamedTuple):
    """Records end to end with rising numbers. `producer_id` 0: without numbers."""

    producer_id: int
    first_sequence: int
    record_count: int


def producer_number(producer_id: int, sequence: int) -> int:
    """The field's value, as the signed number that readers see.

    >>> producer_number(1, 2) == (1 << 24) + 2
    True
    >>> producer_number(PRODUCER_ID_END - 1, SEQUENCE_END - 1)
    -1
    """
    value = producer_id << SEQUENCE_BITS | sequence
    return value if value < _SIGN else value - (_SIGN << 1)


def producer_numbers(runs: Sequence[ProducerRun]) -> Int64Array:
    """The field's values for the records of `runs`, concatenated."""
    import numpy as np  # Only for brokers: producers do not have it.

    parts = []
    for producer_id, first, count in runs:
        if producer_id:
            number = producer_number(producer_id, first)
            parts.append(np.arange(number, number + count, dtype=np.int64))
        else:
            parts.append(np.zeros(count, np.int64))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def producer_ids(numbers: Int64Array) -> Int64Array:
    """The ids in fields; 0: none."""
    return (numbers >> SEQUENCE_BITS) & (PRODUCER_ID_END - 1)


def sequences(numbers: Int64Array) -> Int64Array:
    """The sequences in fields."""
    return numbers & (SEQUENCE_END - 1)
