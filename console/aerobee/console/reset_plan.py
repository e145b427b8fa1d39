"""What setting a group's offsets would do, queue by queue, before it is done. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aerobee.client_core.offsets import QueueBounds
from aerobee.cluster_view.route import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueReset:
    """One queue."""

    queue: MessageQueue
    before: int | None
    """None: the group never committed here."""
    after: int
    bounds: QueueBounds

    @property
    def _start(self) -> int:
        """Where the group would go on now, as far as is known."""
        if self.before is None:
            return self.bounds.min_offset
        return min(max(self.before, self.bounds.min_offset), self.bounds.max_offset_end)

    @property
    def again(self) -> int:
        """Messages that the group gets again."""
        return 0 if self.before is None else max(0, self._start - self.after)

    @property
    def skipped(self) -> int:
        """Unread messages that the group does not get. Of a queue without an offset, all that come
        before the new one: where its members would begin is theirs to say."""
        return max(0, self.after - self._start)

    @property
    def left(self) -> int:
        """Messages that the group has not read after the reset."""
        return max(0, self.bounds.max_offset_end - self.after)


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """All queues, in ascending order."""

    queues: tuple[QueueReset, ...]

    @classmethod
    def of(
        cls,
        before: Mapping[MessageQueue, int | None],
        after: Mapping[MessageQueue, int],
        bounds: Mapping[MessageQueue, QueueBounds],
    ) -> ResetPlan:
        return cls(
            tuple(
                QueueReset(queue, before.get(queue), after[queue], bounds[queue])
                for queue in sorted(after)
            )
        )

    @property
    def again(self) -> int:
        return sum(each.again for each in self.queues)

    @property
    def skipped(self) -> int:
        return sum(each.skipped for each in self.queues)

    @property
    def left(self) -> int:
        return sum(each.left for each in self.queues)

    @property
    def changed(self) -> int:
        """How many queues get another offset."""
        return sum(each.before != each.after for each in self.queues)


def places_text(plan: ResetPlan) -> list[str]:
    """For a form that confirms exactly this plan."""
    return [f"{each.queue.queue_id} {each.after} {each.queue.broker_name}" for each in plan.queues]


def read_places(topic: str, places: Sequence[str]) -> dict[MessageQueue, int]:
    """The offsets that a form confirms. Raises ValueError."""
    found = {}
    for place in places:
        queue_id, offset, broker_name = place.split(" ", 2)
        if not all(each.isascii() and each.isdigit() for each in (queue_id, offset)):
            raise ValueError(place)
        found[MessageQueue(topic, broker_name, int(queue_id))] = int(offset)
    return found
