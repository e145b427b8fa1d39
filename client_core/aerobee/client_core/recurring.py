"""Schedules that recur, over all brokers: added, listed, changed, run now, removed.

A schedule lives at one broker group that has queues of its topic; its runs go to these queues.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.master_search import AnswerList, Masters, ask_masters
from aerobee.client_core.message import Message
from aerobee.client_core.schedule import Delay, DeliverAt, delay_ms_of, time_ms
from aerobee.cluster_view.methods import ACT_ON_SCHEDULE, LIST_SCHEDULES, PUT_SCHEDULE
from aerobee.cluster_view.route import Endpoint
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2

Missed = Literal["skip", "one", "all"]
"""What becomes of runs that were missed, because their time came while no master could send them.

skip: of several due runs only the newest is sent, and only if it is at most a minute late.
one: of several due runs only the newest is sent, however late.
all: every run is sent, in order.
"""

_MISSED: Final[Mapping[str, broker_pb2.MissedRuns]] = {
    "skip": broker_pb2.SKIP_MISSED,
    "one": broker_pb2.SEND_ONE_MISSED,
    "all": broker_pb2.SEND_ALL_MISSED,
}
_SAID_MISSED: Final[Mapping[int, Missed]] = {
    broker_pb2.SKIP_MISSED: "skip",
    broker_pb2.SEND_ONE_MISSED: "one",
    broker_pb2.SEND_ALL_MISSED: "all",
}
RETRY_S: Final = 0.1
RUN_SCHEDULE: Final = "AEROBEE_SCHEDULE"
"""Property of the message of a run: its schedule's name."""
RUN_MS: Final = "AEROBEE_RUN_MS"
"""Property of the message of a run: the time for which it was scheduled, Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class RecurringSchedule:
    """A schedule, and how far it is. Times are Unix ms; 0: none."""

    name: str
    message: Message
    """What each run sends."""
    broker_name: str
    """The broker group that has it."""
    cron: str
    """Empty: it has an interval."""
    zone: str
    """Of the cron expression."""
    every_ms: int
    """The interval; 0: it has a cron expression."""
    from_ms: int
    until_ms: int
    max_runs: int
    missed: Missed
    is_paused: bool
    next_ms: int
    """Time of the next run; 0: it is paused, or has ended."""
    runs: int
    """Sent on schedule."""
    missed_runs: int
    """Not sent, because they were missed."""
    last_ms: int
    """Time of the newest run on schedule."""
    trouble: str
    """Why its next run cannot be sent now; empty: it can, as far as known."""
    created_ms: int
    revision: int

    @property
    def has_ended(self) -> bool:
        """It will not run again, unless it is changed."""
        return not self.next_ms and not self.is_paused


class RecurringSchedules:
    """The part of `Schedules` for what recurs. Every call may raise NoBrokerAvailable, Unreachable,
    DeadlineExceeded and AccessDenied."""

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._masters = Masters(connection, timeout_ms=timeout_ms)
        self._channels = connection.channels
        self._routes = connection.routes
        self._clock = connection.clock
        self._timeout_ms = timeout_ms

    async def add(
        self,
        name: str,
        message: Message,
        *,
        cron: str = "",
        zone: str = "UTC",
        every: Delay | None = None,
        start: DeliverAt | None = None,
        until: DeliverAt | None = None,
        max_runs: int = 0,
        missed: Missed = "skip",
    ) -> RecurringSchedule:
        """A new schedule: the message is sent again and again, each run exactly once.

        Args:
            name: identifies it in the cluster; at most 128 characters.
            message: has neither a delay nor a sharding key.
            cron: minute, hour, day of month, month and day of week: `0 8 * * MON-FRI`.
            zone: the time zone of `cron`: `Europe/Berlin`.
            every: instead of `cron`: this long, at least a second, counted from `start`.
            start: no run is before this; by default from now.
            until: no run is at this time or later.
            max_runs: it ends after so many runs on schedule; 0: it does not.
            missed: what becomes of runs that were missed.

        Raises:
            ScheduleExists: there is one of this name.
            InvalidArgument, MessageIllegal, MessageTooLarge: it could not run.
            TopicNotFound, NotWritableTopic: its topic takes no message.
            LimitReached: the broker group has 1,000 schedules.
            DeadlineExceeded: it may have been added; `find` says.
        """
        request = broker_pb2.PutScheduleRequest(definition=_definition(name, message))
        _set_when(
            request.definition,
            cron=cron,
            zone=zone,
            every=every,
            start=start,
            until=until,
            max_runs=max_runs,
            missed=missed,
        )
        known = await self.recurring(name=name)
        if known:
            raise errors.ScheduleExists(
                f"there is a schedule {name!r} at {known[0].broker_name}: change it, or choose "
                "another name"
            )
        if known.unanswered:
            raise errors.NoBrokerAvailable(
                f"{', '.join(known.unanswered)} does not answer, and may have a schedule {name!r}: "
                "see `aerobee cluster show`"
            )
        broker_name = await self._place(name, message.topic)
        return await self._put(broker_name, request)

    async def recurring(self, topic: str = "", *, name: str = "") -> AnswerList[RecurringSchedule]:
        """Schedules by name, of a topic or of all; `unanswered`: broker groups whose schedules are
        missing."""
        request = broker_pb2.ListSchedulesRequest(topic=topic, name=name)

        async def ask(endpoint: Endpoint) -> list[RecurringSchedule]:
            answer = await self._channels.call(
                endpoint.address, LIST_SCHEDULES, request, timeout_ms=self._timeout_ms
            )
            return [_schedule(each, endpoint.broker_name) for each in answer.schedules]

        answers, unanswered = await ask_masters(await self._masters.roll_call(), ask)
        found = [schedule for schedules in answers.values() for schedule in schedules]
        return AnswerList(sorted(found, key=lambda each: each.name), unanswered)

    async def find(self, name: str) -> RecurringSchedule:
        """One schedule. Raises ScheduleNotFound."""
        found = await self.recurring(name=name)
        if found:
            return found[0]
        if found.unanswered:
            raise errors.NoBrokerAvailable(
                f"no broker that answers has a schedule {name!r}, and "
                f"{', '.join(found.unanswered)} does not answer: see `aerobee cluster show`"
            )
        raise errors.ScheduleNotFound(
            f"there is no schedule {name!r}: see those that there are, or check the spelling"
        )

    async def change(
        self,
        name: str,
        *,
        message: Message | None = None,
        cron: str | None = None,
        zone: str | None = None,
        every: Delay | None = None,
        start: DeliverAt | None = None,
        until: DeliverAt | None = None,
        max_runs: int | None = None,
        missed: Missed | None = None,
    ) -> RecurringSchedule:
        """Change what is given. `cron` replaces an interval, and `every` a cron expression; the
        counts stay.

        Raises as `add`; ScheduleNotFound; ScheduleChanged: by another caller meanwhile.
        """
        before = await self.find(name)
        definition = _definition(name, message or before.message)
        if cron and every is not None:
            raise errors.InvalidArgument("give either a cron expression or an interval")
        _set_when(
            definition,
            cron="" if every is not None else before.cron if cron is None else cron,
            zone=before.zone if zone is None else zone,
            every=every if cron or every is not None else (before.every_ms / 1_000 or None),
            start=(before.from_ms or None) if start is None else start,
            until=(before.until_ms or None) if until is None else until,
            max_runs=before.max_runs if max_runs is None else max_runs,
            missed=before.missed if missed is None else missed,
        )
        request = broker_pb2.PutScheduleRequest(definition=definition, revision=before.revision)
        return await self._put(before.broker_name, request)

    async def pause(self, name: str) -> None:
        """It does not run until it is resumed. Raises ScheduleNotFound."""
        await self._act(name, broker_pb2.PAUSE_SCHEDULE)

    async def resume(self, name: str) -> None:
        """It continues with its next time; what it did not send during the pause is not missed.
        Raises ScheduleNotFound."""
        await self._act(name, broker_pb2.RESUME_SCHEDULE)

    async def run_now(self, name: str) -> None:
        """One more run, at once, which counts for no limit; also of a schedule that is paused or
        has ended. Raises ScheduleNotFound; DeadlineExceeded: it may have run."""
        await self._act(name, broker_pb2.RUN_SCHEDULE, self._clock.now_ms())

    async def remove(self, name: str) -> None:
        """It runs no more. Raises ScheduleNotFound."""
        await self._act(name, broker_pb2.REMOVE_SCHEDULE)

    # ---------------------------------------------------------------------- asking

    async def _place(self, name: str, topic: str) -> str:
        """The same broker group for everyone who adds the same schedule."""
        route = await self._routes.route(topic, timeout_ms=self._timeout_ms)
        names = route.queues_by_broker.keys() - route.closed
        if not names:
            raise errors.NoBrokerAvailable(f"no broker group takes messages of topic {topic!r}")
        return max(names, key=lambda each: hashlib.sha256(f"{each} {name}".encode()).digest())

    async def _put(
        self, broker_name: str, request: broker_pb2.PutScheduleRequest
    ) -> RecurringSchedule:
        master = await self._masters.of(broker_name)
        answer = await self._channels.call(
            master.address, PUT_SCHEDULE, request, timeout_ms=self._timeout_ms
        )
        return _schedule(answer.schedule, broker_name)

    async def _act(self, name: str, act: broker_pb2.ScheduleAct, time_ms: int = 0) -> None:
        found = await self.find(name)
        request = broker_pb2.ActOnScheduleRequest(
            name=name, topic=found.message.topic, act=act, time_ms=time_ms
        )
        end_s = self._clock.monotonic_s() + self._timeout_ms / 1_000
        while True:
            left_ms = max(1, int((end_s - self._clock.monotonic_s()) * 1_000))
            try:
                master = await self._masters.of(found.broker_name)
                await self._channels.call(
                    master.address, ACT_ON_SCHEDULE, request, timeout_ms=left_ms
                )
            except (errors.NotMaster, errors.ReplicaBehind, errors.ShuttingDown):
                # Repeating does no harm: a run has its time, and the rest is as asked for.
                if self._clock.monotonic_s() + RETRY_S >= end_s:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                return


def _definition(name: str, message: Message) -> broker_pb2.ScheduleDefinition:
    if message.schedule is not None or message.sharding_key is not None:
        raise errors.InvalidArgument(
            "a schedule says when its message is sent, and its queues take turns: leave delay, "
            "deliver_at, delay_level and sharding_key out"
        )
    return broker_pb2.ScheduleDefinition(
        name=name,
        topic=message.topic,
        body=message.body,
        tag=message.tag or "",
        keys=message.keys,
        properties=message.properties,
    )


def _set_when(
    definition: broker_pb2.ScheduleDefinition,
    *,
    cron: str,
    zone: str,
    every: Delay | None,
    start: DeliverAt | None,
    until: DeliverAt | None,
    max_runs: int,
    missed: Missed,
) -> None:
    """Raises InvalidArgument, MessageIllegal."""
    if bool(cron) == (every is not None):
        raise errors.InvalidArgument("give either a cron expression or an interval")
    if missed not in _MISSED:
        raise errors.InvalidArgument(f"missed is one of {', '.join(_MISSED)}, not {missed!r}")
    definition.cron = cron
    definition.zone = zone
    definition.every_ms = 0 if every is None else delay_ms_of(every)
    definition.from_ms = 0 if start is None else time_ms(start)
    definition.until_ms = 0 if until is None else time_ms(until)
    definition.runs_max = max_runs
    definition.missed = _MISSED[missed]


def _schedule(found: broker_pb2.ScheduleState, broker_name: str) -> RecurringSchedule:
    of = found.definition
    return RecurringSchedule(
        name=of.name,
        message=Message(
            of.topic, of.body, tag=of.tag or None, keys=of.keys, properties=dict(of.properties)
        ),
        broker_name=broker_name,
        cron=of.cron,
        zone=of.zone,
        every_ms=of.every_ms,
        from_ms=of.from_ms,
        until_ms=of.until_ms,
        max_runs=of.runs_max,
        missed=_SAID_MISSED.get(of.missed, "skip"),
        is_paused=found.paused,
        next_ms=found.next_ms,
        runs=found.runs,
        missed_runs=found.missed_runs,
        last_ms=found.last_ms,
        trouble=found.trouble,
        created_ms=found.created_ms,
        revision=found.revision,
    )
