"""How fast queues grow, from what pages show anyway: nothing more is asked for it.

Owns: where queues ended when somebody last looked, and the rates between two looks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from aerobee.client_core.offsets import QueueBounds
from aerobee.cluster_view.route import MessageQueue

QUEUES_MAX: Final = 20_000
APART_S_MIN: Final = 2.0
APART_S_MAX: Final = 120.0
"""After a longer pause, a rate would be one of the past."""


class Rates:
    """Pure: the caller passes the monotonic time."""

    def __init__(self) -> None:
        self._seen: OrderedDict[MessageQueue, tuple[float, int, float | None]] = OrderedDict()

    def look(
        self, bounds: Mapping[MessageQueue, QueueBounds], now_s: float
    ) -> dict[MessageQueue, float | None]:
        """Messages per second that each queue got since the look before; None: not known yet."""
        found: dict[MessageQueue, float | None] = {}
        for queue, held in bounds.items():
            since_s, end, rate = self._seen.get(queue, (now_s, held.max_offset_end, None))
            apart_s = now_s - since_s
            if APART_S_MIN <= apart_s <= APART_S_MAX and held.max_offset_end >= end:
                rate = (held.max_offset_end - end) / apart_s
            elif apart_s > APART_S_MAX:
                rate = None
            if queue not in self._seen or apart_s >= APART_S_MIN:
                self._seen[queue] = (now_s, held.max_offset_end, rate)
                self._seen.move_to_end(queue)
            found[queue] = rate
        while len(self._seen) > QUEUES_MAX:
            self._seen.popitem(last=False)
        return found
