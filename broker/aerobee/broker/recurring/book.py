"""What operators and clients do with schedules: add, list, change, pause, run now, remove. This is
all that an edge needs of them.

Owns: the order of these steps, and when they count: when a call returns, its effect is confirmed
and on disk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from aerobee.broker.journal.journal import Journal
from aerobee.broker.recurring.message import check_message
from aerobee.broker.recurring.runner import Runner
from aerobee.broker.recurring.schedules import (
    SCHEDULES_MAX,
    Definition,
    Schedule,
    ScheduleEntry,
)
from aerobee.broker.recurring.state import ScheduleJournalState, ScheduleTerm
from aerobee.broker.recurring.times import check_when
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.durable_changes import confirmed_and_flushed, in_time
from aerobee.broker.sending.guard import Guard
from aerobee.domain.names import check_text
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    InvalidArgument,
    LimitReached,
    ScheduleChanged,
    ScheduleExists,
    ScheduleNotFound,
)
from aerobee.store.engine.message_store import MessageStore

ADVICE: Final = "look at the schedule again"
NAME_LENGTH_MAX: Final = 128


class Listed(NamedTuple):
    """A schedule, and why its next run cannot be sent now; empty: it can, as far as known."""

    schedule: Schedule
    trouble: str


class Book:
    """On the loop."""

    def __init__(
        self,
        state: ScheduleJournalState,
        journal: Journal[ScheduleEntry, ScheduleTerm],
        runner: Runner,
        guard: Guard,
        store: MessageStore,
        durability: Durability,
        clock: Clock,
    ) -> None:
        self._state = state
        self._journal = journal
        self._runner = runner
        self._guard = guard
        self._store = store
        self._durability = durability
        self._clock = clock

    def listed(self) -> list[Listed]:
        """By name. A slave lists what it knows to be confirmed. Raises ReplicaBehind."""
        self._journal.check_known()
        term = self._journal.term
        schedules = (self._state if term is None else term).schedules
        troubles = self._runner.troubles
        return [
            Listed(schedule, troubles.get(name, ""))
            for name, schedule in sorted(schedules.by_name.items())
        ]

    def count(self, topic: str = "") -> int:
        """Schedules that have not ended, of a topic or of all."""
        return sum(
            not each.has_ended and topic in ("", each.definition.topic)
            for each in self._state.schedules.by_name.values()
        )

    async def add(self, definition: Definition) -> Schedule:
        """A new schedule, with its first run.

        Raises:
            ScheduleExists: there is one of this name here.
            InvalidArgument, MessageIllegal, TopicNotFound, NotWritableTopic, and others: it could
                not run.
            LimitReached: the broker group has as many schedules as it takes.
            DeadlineExceeded: it may have been added.
            NotMaster, Busy: nothing was done.
        """
        self._check(definition)
        term = self._journal.writer()
        known = term.schedules.by_name
        if definition.name in known:
            raise ScheduleExists(
                f"there is a schedule {definition.name!r}: change it, or choose another name"
            )
        if len(known) >= SCHEDULES_MAX:
            raise LimitReached(
                f"broker {self._guard.broker_name} has {SCHEDULES_MAX} schedules: remove some of "
                "those that have ended"
            )
        now_ms = self._clock.now_ms()
        return await self._put(term, Schedule(_anchored(definition, now_ms), created_ms=now_ms))

    async def change(self, definition: Definition, revision: int) -> Schedule:
        """Another definition for the schedule of this name; its counts stay. Raises as `add`, and

        ScheduleNotFound: there is none.
        ScheduleChanged: it has another revision by now.
        """
        self._check(definition)
        term = self._journal.writer()
        before = self._settled(term, definition.name)
        if before.revision != revision:
            raise ScheduleChanged(
                f"schedule {definition.name!r} was changed meanwhile: look at it again"
            )
        if before.definition.when == definition.when:
            changed = replace(before, definition=definition)
        else:
            changed = replace(before, definition=_anchored(definition, self._clock.now_ms()))
        return await self._put(term, replace(changed, revision=revision + 1))

    async def set_paused(self, name: str, topic: str, *, is_paused: bool) -> Schedule:
        """Stop or continue; what would have run during the pause is not missed. Raises as
        `change`."""
        term = self._journal.writer()
        before = self._settled(term, name, topic)
        if before.is_paused == is_paused:
            return before
        changed = replace(before, is_paused=is_paused, revision=before.revision + 1)
        return await self._put(term, changed)

    async def remove(self, name: str, topic: str) -> None:
        """It runs no more. Raises as `change`."""
        term = self._journal.writer()
        self._settled(term, name, topic)
        await in_time(term.remove(name), ADVICE)

    async def run_now(self, name: str, topic: str, time_ms: int) -> None:
        """Send a run besides those on schedule, under this time. Asking again with the same time
        sends no other one. Raises as `change`."""
        term = self._journal.writer()
        schedule = self._settled(term, name, topic)
        if schedule.progress.asked_ms != time_ms:
            self._runner.send_now(term, schedule, time_ms)
        end = self._store.appended_end
        self._durability.request_flush()
        unsure = "the run was confirmed, so it may or may not have been sent"
        await in_time(confirmed_and_flushed(self._durability, end, unsure), ADVICE)

    # ------------------------------------------------------------------------------ steps

    def _check(self, definition: Definition) -> None:
        if not definition.name or len(definition.name) > NAME_LENGTH_MAX:
            raise InvalidArgument(f"the name of a schedule has 1 to {NAME_LENGTH_MAX} characters")
        check_text("schedule", definition.name)
        check_when(definition.when)
        check_message(definition)
        self._guard.check_send(definition.topic, 0)

    def _settled(self, term: ScheduleTerm, name: str, topic: str = "") -> Schedule:
        """Raises ScheduleNotFound; AerobeeError: a run is open and cannot be finished."""
        self._runner.finish(term)
        schedule = term.schedules.by_name.get(name)
        if schedule is None or topic not in ("", schedule.definition.topic):
            raise ScheduleNotFound(f"there is no schedule {name!r} here: see those that there are")
        return schedule

    async def _put(self, term: ScheduleTerm, schedule: Schedule) -> Schedule:
        planned = schedule.planned(self._clock.now_ms())
        if planned.has_ended and schedule.progress.runs == 0:
            raise InvalidArgument(
                f"schedule {schedule.name!r} would never run: its times are past, or there are none"
            )
        await in_time(term.put(planned), ADVICE)
        self._runner.wake()
        return planned


def _anchored(definition: Definition, now_ms: int) -> Definition:
    """An interval is counted from its beginning, by default from now."""
    when = definition.when
    if when.every_ms and not when.from_ms:
        return replace(definition, when=replace(when, from_ms=now_ms))
    return definition
