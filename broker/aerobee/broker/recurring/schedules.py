"""PURE: the schedules of a broker group, and what the entries of their journal do to them.

Owns: what becomes of the runs that were missed. A run is on time if it is the newest that is due
and no more than LATE_MS late. So after an outage, or a delay of the master, the rules say:

    skip  only the newest run is sent, and only if it is on time
    one   only the newest run is sent, however late
    all   every run is sent, in order

Entries say what holds after them, not what changes, so applying one twice does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from aerobee.broker.recurring.times import NEVER, When, due, next_after

LATE_MS: Final = 60_000
SCHEDULES_MAX: Final = 1_000


class MissedRule(StrEnum):
    """What is sent of the runs that came due while none could be sent."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Definition:
    """What a schedule sends, and when."""

    name: str
    topic: str
    body: bytes
    when: When
    tag: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    runs_max: int = 0
    """0: without end."""
    missed: MissedRule = MissedRule.SKIP


class Progress(NamedTuple):
    """How far a schedule is. Times are Unix ms."""

    next_ms: int = NEVER
    """NEVER: it is paused, or has ended."""
    runs: int = 0
    """Sent on schedule."""
    missed: int = 0
    """Not sent, by the rule for missed runs."""
    last_ms: int = 0
    """Time of the newest run that was sent on schedule; 0: none was."""
    asked_ms: int = 0
    """Time of the newest run that was sent on request; 0: none was."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule and its progress."""

    definition: Definition
    created_ms: int
    revision: int = 1
    """Rises with each change of what the schedule is."""
    is_paused: bool = False
    progress: Progress = field(default_factory=Progress)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def next_ms(self) -> int:
        return self.progress.next_ms

    @property
    def has_ended(self) -> bool:
        """It will not run again by itself, unless it is changed."""
        return self.next_ms == NEVER and not self.is_paused

    def planned(self, now_ms: int) -> Schedule:
        """With its next run after now."""
        limit, next_ms = self.definition.runs_max, NEVER
        if not self.is_paused and not (limit and self.progress.runs >= limit):
            next_ms = next_after(self.definition.when, now_ms)
        return replace(self, progress=self.progress._replace(next_ms=next_ms))

    def after_run(self, time_ms: int, next_ms: int, missed: int) -> Progress:
        """Once the run of this time is sent, and so many before it were missed."""
        runs, limit = self.progress.runs + 1, self.definition.runs_max
        return self.progress._replace(
            next_ms=NEVER if limit and runs >= limit else next_ms,
            runs=runs,
            missed=self.progress.missed + missed,
            last_ms=time_ms,
        )


class Step(NamedTuple):
    """What is due of a schedule: a run, or none (`time_ms` 0) because all were missed."""

    time_ms: int
    progress: Progress
    """Once that is done."""


def step_of(schedule: Schedule, now_ms: int) -> Step | None:
    """What a master does now; None: nothing is due."""
    when, rule, next_ms = schedule.definition.when, schedule.definition.missed, schedule.next_ms
    if next_ms == NEVER or next_ms > now_ms:
        return None
    if rule is MissedRule.ALL:
        return Step(next_ms, schedule.after_run(next_ms, next_after(when, next_ms), 0))
    last_ms, count, following_ms = due(when, next_ms, now_ms)
    if rule is MissedRule.ONE or now_ms - last_ms <= LATE_MS:
        return Step(last_ms, schedule.after_run(last_ms, following_ms, count - 1))
    missed = schedule.progress.missed + count
    return Step(0, schedule.progress._replace(next_ms=following_ms, missed=missed))


# ---------------------------------------------------------------------------------- entries


@dataclass(frozen=True, slots=True)
class Put:
    """A schedule is this from now on."""

    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Removed:
    """There is no such schedule any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Ran:
    """A run will be appended under this number, to this queue of its topic."""

    number: int
    name: str
    time_ms: int
    queue_id: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Passed:
    """Runs were missed, and none is sent."""

    name: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class Acted:
    """Every run with a number below `through` is in the log, or was given up."""

    through: int


@dataclass(frozen=True, slots=True)
class Counted:
    """Begins an image: the number of the next run."""

    next_number: int


ScheduleEntry = Put | Removed | Ran | Passed | Acted | Counted


class Schedules:
    """The schedules of a broker group, after some of the journal's entries."""

    def __init__(self) -> None:
        self.by_name: dict[str, Schedule] = {}
        self.next_number = 0
        self.open: Ran | None = None
        """The run that is perhaps not in the log yet."""

    def __repr__(self) -> str:
        return f"Schedules({len(self.by_name)}, open={self.open})"

    def copy(self) -> Schedules:
        """Another one with the same content."""
        copied = Schedules()
        copied.by_name = self.by_name.copy()
        copied.next_number, copied.open = self.next_number, self.open
        return copied

    def apply(self, entries: Iterable[ScheduleEntry]) -> None:
        """What these say holds from now on."""
        for entry in entries:
            match entry:
                case Put(schedule):
                    self.by_name[schedule.name] = schedule
                case Removed(name):
                    self.by_name.pop(name, None)
                case Ran():
                    self._progressed(entry.name, entry.progress)
                    self.next_number, self.open = max(self.next_number, entry.number + 1), entry
                case Passed(name, progress):
                    self._progressed(name, progress)
                case Acted(through):
                    if self.open is not None and self.open.number < through:
                        self.open = None
                case Counted(next_number):
                    self.next_number = max(self.next_number, next_number)

    def _progressed(self, name: str, progress: Progress) -> None:
        if (schedule := self.by_name.get(name)) is not None:
            self.by_name[name] = replace(schedule, progress=progress)

    def wake_ms(self) -> int | None:
        """When the next run is due; None: none will be."""
        return min((each.next_ms for each in self.by_name.values() if each.next_ms), default=None)


def image_of(now: Callable[[], Schedules]) -> Iterator[ScheduleEntry]:
    """All of it as entries, each as of when it is taken."""
    yield Counted(now().next_number)
    if (ran := now().open) is not None:
        yield ran  # before its schedule, which has what changed since
    for name in list(now().by_name):
        if (schedule := now().by_name.get(name)) is not None:
            yield Put(schedule)
