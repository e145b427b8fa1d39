"""Virtual time: one event queue for all processes of a simulated cluster.

A place is a machine's slot for one process. An event belongs to a place, and possibly to one
process: then it is dropped when the process has ended. It waits while the place is paused. Each
place has its own clock, which runs up to one percent fast or slow.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from tests.simulation.judge import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.network import Stream

STEPS_MAX = 500_000
"""Ten times as many as the longest run needs: something is in an endless loop."""

Call = Callable[..., None]
"""Called with the process running at the place, then the event's arguments."""

Event = tuple[float, int, "Place", "Process | None", Call, tuple[Any, ...]]


class Place:
    """Where a process runs, and what outlives it: the machine's clock and its network address."""

    __slots__ = (
        "backlog",
        "index",
        "is_paused",
        "name",
        "opens_at",
        "process",
        "rate",
        "skew_s",
        "wall_s",
    )

    def __init__(self, index: int, name: str, *, rate: float, skew_s: float) -> None:
        self.index = index
        self.name = name
        self.rate = rate
        self.skew_s = skew_s
        self.process: Process | None = None
        self.is_paused = False
        self.backlog: list[Event] = []
        self.wall_s = 0.0
        """How far the wall clock is ahead."""
        self.opens_at = 0.0
        """When the next process starts here, if that is scheduled."""

    def __repr__(self) -> str:
        return self.name


class Process:
    """Something that runs at a place."""

    __slots__ = ("place", "streams")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.streams: list[Stream] = []

    @property
    def runs(self) -> bool:
        return self.place.process is self

    def stream_ended(self, stream: object) -> None:
        """A stream of this process is broken, or its other end has closed it."""


class Kernel:
    """Times are seconds since the start of the run."""

    __slots__ = ("_count", "_heap", "now_s", "steps")

    def __init__(self) -> None:
        self.now_s = 0.0
        self.steps = 0
        self._heap: list[Event] = []
        self._count = 0

    def clock_s(self, place: Place) -> float:
        """The monotonic clock of a place."""
        return self.now_s * place.rate + place.skew_s

    def push(
        self, time_s: float, place: Place, process: Process | None, call: Call, *args: Any
    ) -> None:
        """An event at a place; for any process running there then, unless `process` is given."""
        self._count += 1
        heappush(self._heap, (time_s, self._count, place, process, call, args))

    def after(self, delay_s: float, process: Process, call: Call, *args: Any) -> None:
        """A timer of a process, by its own clock."""
        self._count += 1
        place = process.place
        time_s = self.now_s + delay_s / place.rate
        heappush(self._heap, (time_s, self._count, place, process, call, args))

    def resume(self, place: Place) -> None:
        """Resume the place after a pause, with everything that arrived meanwhile."""
        place.is_paused = False
        backlog, place.backlog = place.backlog, []
        for _, _, _, process, call, args in backlog:
            self.push(self.now_s, place, process, call, *args)

    def run(self, until_s: float) -> None:
        """Run all events up to this time."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            event = heappop(heap)
            time_s, _, place, process, call, args = event
            self.now_s = time_s
            present = place.process
            if present is None or (process is not None and process is not present):
                continue
            if place.is_paused:
                place.backlog.append(event)
                continue
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise Violation(f"{STEPS_MAX} steps, and the story is at {self.now_s:.3f} s")
            call(present, *args)
        self.now_s = until_s
