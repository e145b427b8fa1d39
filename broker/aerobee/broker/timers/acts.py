"""The numbers under which intents are carried out, and how a new master learns which were.

Every act is a record that the broker appends as an idempotent producer of its own: act n has the
sequence n modulo 2**24 of producer BROKER_PRODUCER_IDS + n // 2**24. From its producers' windows,
which follow from the log alone, a replica knows whether such a record is stored. So

    an intent that was lost     took its acts along: they come after it in the log
    an act that was stored      is found, and not done again
    an act that is not found    is done now, under the same number

The acts of one intent that go to the same queue should have consecutive numbers, which they have if
the sources are ordered by destination: they then form one interval in that queue's window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from aerobee.broker.timers.entries import Intent, Source
from aerobee.store.engine.producers.producer_windows import ProducerName
from aerobee.store.engine.producers.window import AlreadyStored
from aerobee.store.format.producer_number import (
    BROKER_PRODUCER_IDS,
    SEQUENCE_BITS,
    SEQUENCE_END,
    ProducerRun,
)


class Destination(NamedTuple):
    """Where a copy goes."""

    topic: str
    queue_id: int


class Act(NamedTuple):
    """One copy to be appended."""

    number: int
    source: Source
    destination: Destination


Standing = Callable[[ProducerName, int, int], AlreadyStored | None]
"""See `ProducerWindows.standing`."""


class ActsUnknown(Exception):
    """The windows do not reach back to an open intent. It would be wrong both to perform its acts
    and to omit them."""


def producer_runs(first_number: int, count: int) -> Iterator[ProducerRun]:
    """The numbers of `count` acts as producers' ids and sequences."""
    end = first_number + count
    while first_number < end:
        sequence = first_number % SEQUENCE_END
        run = min(end - first_number, SEQUENCE_END - sequence)
        yield ProducerRun(BROKER_PRODUCER_IDS + (first_number >> SEQUENCE_BITS), sequence, run)
        first_number += run


def all_acts(intent: Intent, destinations: Sequence[Destination]) -> list[Act]:
    """`destinations`: where each source's copy goes, in the intent's order."""
    numbers = range(intent.first_number, intent.end_number)
    return [Act(*each) for each in zip(numbers, intent.sources, destinations, strict=True)]


def missing_acts(acts: Sequence[Act], given_up: Collection[int], standing: Standing) -> list[Act]:
    """The acts of an open intent that have yet to be done.

    Raises:
        ActsUnknown: this cannot be determined.
    """
    missing = []
    for act in acts:
        if act.number in given_up:
            continue
        run = next(producer_runs(act.number, 1))
        name = ProducerName(*act.destination, run.producer_id)
        found = standing(name, run.first_sequence, 1)
        if found is None:
            raise ActsUnknown(f"whether act {act.number} to {act.destination} is stored is unknown")
        if not found.stored_count:
            missing.append(act)
    return missing
