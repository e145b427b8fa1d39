"""What the demo knows while it runs, drawn from the consumers' notes.

Owns: the tally of each group: which events it has seen, per consumer and in all. Reading the notes
is cheap and incremental; the proof at the end uses the same sightings, all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aerobee.cli.demo.consumers import ConsumerProcess
from aerobee.cli.demo.sightings import Sighting
from aerobee.runtime.clock import Clock


@dataclass(slots=True)
class GroupTally:
    """A group's consumers and the distinct events that they have seen together."""

    group: str
    consumers: Sequence[ConsumerProcess]
    clock: Clock
    seen: set[str] = field(default_factory=set)
    first_s: float | None = None
    """When the first sighting was read."""
    last_s: float = 0.0
    """When something new was last read."""

    def read_new(self) -> list[tuple[ConsumerProcess, Sighting]]:
        """Everything that the group's consumers have noted since the last call."""
        found: list[tuple[ConsumerProcess, Sighting]] = []
        for consumer in self.consumers:
            new = consumer.read_new()
            found.extend((consumer, sighting) for sighting in new)
            self.seen.update(sighting.identity for sighting in new)
        if found:
            self.last_s = self.clock.monotonic_s()
            if self.first_s is None:
                self.first_s = self.last_s
        return found

    @property
    def elapsed_s(self) -> float:
        return 0.0 if self.first_s is None else self.last_s - self.first_s

    def check_alive(self) -> None:
        """Raises Failure when a consumer ended that nobody killed."""
        for consumer in self.consumers:
            consumer.check_alive()

    def note(self) -> str:
        """How the work is shared, for the display."""
        if len(self.consumers) == 1:
            return ""
        return ", ".join(
            f"{consumer.name} {len(consumer.sightings):,}{' †' if consumer.was_killed else ''}"
            for consumer in self.consumers
        )
