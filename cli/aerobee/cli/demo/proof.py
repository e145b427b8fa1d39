"""Is every event where it must be? The comparison of what was sent with what consumers wrote down.

Pure: sets in, a verdict out. A message that arrives twice is not an error under at-least-once
delivery, but each one is accounted for: the log position says whether the broker delivered one
stored message twice or the producer stored one event twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aerobee.cli.demo.sightings import Position, Sighting

EXAMPLES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one consumer group saw, measured against what it had to see."""

    expected: int
    seen: int
    """Distinct events among those expected."""
    sightings: int
    """All of them, repetitions included."""
    missing: int
    missing_examples: tuple[str, ...]
    unexpected: int
    """Events that this group must not see: not sent, or of another tag."""
    altered: int
    """Sightings whose body differs from what was sent."""
    redelivered: Mapping[tuple[str, str], int]
    """(first consumer, later consumer) -> messages that one log position delivered to both."""
    stored_twice: int
    """Events that lie at more than one log position: a producer's retry."""

    @property
    def is_proven(self) -> bool:
        """Nothing is missing, nothing is there that must not be, and every body is the one sent."""
        return self.missing == 0 and self.unexpected == 0 and self.altered == 0

    @property
    def repeated(self) -> int:
        """Sightings beyond the first of each event."""
        return self.sightings - self.seen - self.unexpected


def judge(expected: Mapping[str, int], by_consumer: Mapping[str, Sequence[Sighting]]) -> Verdict:
    """Compare the events of a group with its members' notes.

    Args:
        expected: identity of each event that the group must see -> checksum of its body.
        by_consumer: consumer -> its sightings in its order; a consumer that died stands before
            those that took over from it.
    """
    positions: defaultdict[str, set[Position]] = defaultdict(set)
    first_at: dict[Position, str] = {}
    redelivered: Counter[tuple[str, str]] = Counter()
    unexpected = altered = sightings = 0
    for consumer, notes in by_consumer.items():
        for note in notes:
            sightings += 1
            if note.identity not in expected:
                unexpected += 1
                continue
            altered += expected[note.identity] != note.checksum
            positions[note.identity].add(note.position)
            if note.position in first_at:
                redelivered[first_at[note.position], consumer] += 1
            else:
                first_at[note.position] = consumer
    missing = sorted(expected.keys() - positions.keys())
    return Verdict(
        expected=len(expected),
        seen=len(positions),
        sightings=sightings,
        missing=len(missing),
        missing_examples=tuple(missing[:EXAMPLES_MAX]),
        unexpected=unexpected,
        altered=altered,
        redelivered=dict(redelivered),
        stored_twice=sum(1 for places in positions.values() if len(places) > 1),
    )
