"""RecurringService: schedules that send a message again and again."""

from __future__ import annotations

from typing import Any, Final

import grpc

from aerobee.access.running import topics_seen
from aerobee.broker.recurring.book import Book
from aerobee.broker.recurring.schedules import Definition, MissedRule, Schedule
from aerobee.broker.recurring.times import When
from aerobee.runtime.errors import InvalidArgument
from aerobee.v1 import broker_pb2, broker_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]

_RULES: Final = {
    broker_pb2.MISSED_RUNS_UNSPECIFIED: MissedRule.SKIP,
    broker_pb2.SKIP_MISSED: MissedRule.SKIP,
    broker_pb2.SEND_ONE_MISSED: MissedRule.ONE,
    broker_pb2.SEND_ALL_MISSED: MissedRule.ALL,
}
_SAID_RULES: Final = {
    MissedRule.SKIP: broker_pb2.SKIP_MISSED,
    MissedRule.ONE: broker_pb2.SEND_ONE_MISSED,
    MissedRule.ALL: broker_pb2.SEND_ALL_MISSED,
}


class RecurringService(broker_pb2_grpc.RecurringServiceServicer):
    """Translates for `Book`."""

    def __init__(self, book: Book) -> None:
        self._book = book

    async def ListSchedules(
        self, request: broker_pb2.ListSchedulesRequest, context: Context
    ) -> broker_pb2.ListSchedulesResponse:
        sees = topics_seen()
        return broker_pb2.ListSchedulesResponse(
            schedules=[
                _state(each.schedule, each.trouble)
                for each in self._book.listed()
                if request.name in ("", each.schedule.name)
                and request.topic in ("", each.schedule.definition.topic)
                and sees(each.schedule.definition.topic)
            ]
        )

    async def PutSchedule(
        self, request: broker_pb2.PutScheduleRequest, context: Context
    ) -> broker_pb2.PutScheduleResponse:
        definition = _definition(request.definition)
        if request.revision:
            schedule = await self._book.change(definition, request.revision)
        else:
            schedule = await self._book.add(definition)
        return broker_pb2.PutScheduleResponse(schedule=_state(schedule))

    async def ActOnSchedule(
        self, request: broker_pb2.ActOnScheduleRequest, context: Context
    ) -> broker_pb2.ActOnScheduleResponse:
        book, name, topic = self._book, request.name, request.topic
        match request.act:
            case broker_pb2.PAUSE_SCHEDULE:
                await book.set_paused(name, topic, is_paused=True)
            case broker_pb2.RESUME_SCHEDULE:
                await book.set_paused(name, topic, is_paused=False)
            case broker_pb2.REMOVE_SCHEDULE:
                await book.remove(name, topic)
            case broker_pb2.RUN_SCHEDULE:
                await book.run_now(name, topic, request.time_ms)
            case _:
                raise InvalidArgument("say what to do with the schedule")
        return broker_pb2.ActOnScheduleResponse()


def _definition(asked: broker_pb2.ScheduleDefinition) -> Definition:
    """Raises InvalidArgument."""
    rule = _RULES.get(asked.missed)
    if rule is None or min(asked.every_ms, asked.from_ms, asked.until_ms, asked.runs_max) < 0:
        raise InvalidArgument("times and counts of a schedule are not negative; correct them")
    return Definition(
        name=asked.name,
        topic=asked.topic,
        body=asked.body,
        when=When(asked.cron, asked.zone or "UTC", asked.every_ms, asked.from_ms, asked.until_ms),
        tag=asked.tag,
        keys=tuple(asked.keys),
        properties=dict(asked.properties),
        runs_max=asked.runs_max,
        missed=rule,
    )


def _state(schedule: Schedule, trouble: str = "") -> broker_pb2.ScheduleState:
    of, when, progress = schedule.definition, schedule.definition.when, schedule.progress
    return broker_pb2.ScheduleState(
        definition=broker_pb2.ScheduleDefinition(
            name=of.name,
            topic=of.topic,
            body=of.body,
            tag=of.tag,
            keys=of.keys,
            properties=of.properties,
            cron=when.cron,
            zone=when.zone,
            every_ms=when.every_ms,
            from_ms=when.from_ms,
            until_ms=when.until_ms,
            runs_max=of.runs_max,
            missed=_SAID_RULES[of.missed],
        ),
        created_ms=schedule.created_ms,
        revision=schedule.revision,
        paused=schedule.is_paused,
        next_ms=progress.next_ms,
        runs=progress.runs,
        missed_runs=progress.missed,
        last_ms=progress.last_ms,
        trouble=trouble,
    )
