"""Adding and changing schedules that recur, with what would change first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from aerobee.cli.moments import parse_delay_ms, parse_time_ms
from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message
from aerobee.client_core.recurring import Missed, RecurringSchedule
from aerobee.console.editing import Field, Plan, Subject, differences, whole
from aerobee.console.recurring_pages import page_of, when_of
from aerobee.console.visit import Visit
from aerobee.console.words import length
from aerobee.runtime.errors import InvalidArgument, ScheduleExists

RULES: Final[Mapping[str, str]] = {
    "skip": "skip: the newest, if it is at most a minute late",
    "one": "one: the newest, however late",
    "all": "all: each, in order",
}
_MISSED: Final[Mapping[str, Missed]] = {"skip": "skip", "one": "one", "all": "all"}
_UNIT_MS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


@dataclass(frozen=True, slots=True)
class When:
    """When a schedule runs, as a form says it. Times are Unix ms; 0: none."""

    cron: str
    zone: str
    every_ms: int
    from_ms: int
    until_ms: int
    runs_max: int
    missed: Missed

    @classmethod
    def of(cls, values: Mapping[str, str]) -> When:
        """Raises InvalidArgument."""
        if bool(values["cron"]) == bool(values["every"]):
            raise InvalidArgument("give either a cron expression or an interval")
        rule = _MISSED.get(values["missed"])
        if rule is None:
            raise InvalidArgument("say what becomes of missed runs")
        try:
            return cls(
                cron=values["cron"],
                zone=values["zone"] or "UTC",
                every_ms=parse_delay_ms(values["every"]) if values["every"] else 0,
                from_ms=parse_time_ms(values["from"]) if values["from"] else 0,
                until_ms=parse_time_ms(values["until"]) if values["until"] else 0,
                runs_max=whole(values["runs"], "At most") if values["runs"] else 0,
                missed=rule,
            )
        except ValueError as error:
            raise InvalidArgument(str(error)) from None

    @property
    def text(self) -> str:
        return f"{self.cron} ({self.zone})" if self.cron else f"every {length(self.every_ms)}"


async def new_schedule(visit: Visit) -> Subject:
    async def plan(values: Mapping[str, str]) -> Plan:
        return await _addition(visit.admin, values)

    return Subject(
        title="Add a schedule",
        fields=(
            Field("schedule", "Name", is_required=True),
            Field("topic", "Topic", visit.query.get("topic", ""), is_required=True),
            *_when_fields(None),
            Field("body", "Body", is_long=True),
            Field("tag", "Tag"),
            Field("keys", "Keys", help="separated by spaces"),
        ),
        plan=plan,
        back="/scheduled/recurring",
        back_name="Recurring",
        command="aerobee schedule add NAME TOPIC --every 1h --body TEXT",
    )


async def one_schedule(visit: Visit) -> Subject:
    name = visit.query.get("name", "")
    schedule = await visit.admin.schedules.find(name)

    async def plan(values: Mapping[str, str]) -> Plan:
        return _change(visit.admin, schedule, values)

    return Subject(
        title=f"Change {name}",
        fields=(
            *_when_fields(schedule),
            Field("body", "Body", help="empty: as now", is_long=True),
        ),
        plan=plan,
        back=page_of(name),
        back_name=name,
        command=f"aerobee schedule change {name} --every 1h",
    )


def _when_fields(schedule: RecurringSchedule | None) -> tuple[Field, ...]:
    return (
        Field(
            "cron",
            "Cron expression",
            schedule.cron if schedule else "",
            help="minute, hour, day of month, month and day of week: 0 8 * * MON-FRI",
        ),
        Field("zone", "Its time zone", schedule.zone if schedule else "UTC"),
        Field(
            "every",
            "Or an interval",
            _interval(schedule.every_ms) if schedule else "",
            help="such as 30s, 15m, 2h",
        ),
        Field("from", "Not before", _time(schedule.from_ms) if schedule else ""),
        Field(
            "until",
            "Not after",
            _time(schedule.until_ms) if schedule else "",
            help="a time such as 2026-01-31T12:00+00:00",
        ),
        Field(
            "runs",
            "At most so many runs",
            str(schedule.max_runs or "") if schedule else "",
            help="empty: without end",
        ),
        Field(
            "missed",
            "Of runs that could not be sent in time",
            schedule.missed if schedule else "skip",
            choices=RULES,
        ),
    )


async def _addition(admin: AdminClient, values: Mapping[str, str]) -> Plan:
    name, when = values["schedule"], When.of(values)
    message = Message(
        values["topic"],
        values["body"].encode(),
        tag=values["tag"] or None,
        keys=values["keys"].split(),
    )
    if not name:
        raise InvalidArgument("give the schedule a name")
    if await admin.schedules.recurring(name=name):
        raise ScheduleExists(f"there is a schedule {name!r}: change it, or choose another name")

    async def do() -> str:
        added = await admin.schedules.add(
            name,
            message,
            cron=when.cron,
            zone=when.zone,
            every=when.every_ms / 1_000 if when.every_ms else None,
            start=when.from_ms or None,
            until=when.until_ms or None,
            max_runs=when.runs_max,
            missed=when.missed,
        )
        return f"Schedule {name} is added; its first run: {_time(added.next_ms) or '-'}."

    rows = [
        ("Schedule", "", name),
        ("Topic", "", message.topic),
        ("Body", "", f"{len(message.body):,} bytes"),
        *_rows(None, when),
    ]
    return Plan(act="add schedule", on=name, differences=differences(rows), do=do)


def _change(admin: AdminClient, before: RecurringSchedule, values: Mapping[str, str]) -> Plan:
    when, body = When.of(values), values["body"].encode()
    old = before.message
    message = None
    if body and body != old.body:
        message = Message(
            old.topic, body, tag=old.tag, keys=old.keys, properties=dict(old.properties)
        )

    async def do() -> str:
        changed = await admin.schedules.change(
            before.name,
            message=message,
            cron=when.cron or None,
            zone=when.zone if when.cron else None,
            every=when.every_ms / 1_000 if when.every_ms else None,
            start=when.from_ms or None,
            until=when.until_ms or None,
            max_runs=when.runs_max,
            missed=when.missed,
        )
        return f"Schedule {before.name} is changed; its next run: {_time(changed.next_ms) or '-'}."

    notes = []
    for what, old_ms, new_ms in (
        ("the time before which it does not run", before.from_ms, when.from_ms),
        ("the time at which it ends", before.until_ms, when.until_ms),
    ):
        if old_ms and not new_ms:
            raise InvalidArgument(f"{what} cannot be taken away: add the schedule anew")
    rows = _rows(before, when)
    if message is not None:
        rows.append(("Body", f"{len(old.body):,} bytes", f"{len(message.body):,} other bytes"))
    if before.is_paused:
        notes.append("it is paused, and stays so")
    return Plan(
        act="change schedule", on=before.name, differences=differences(rows), do=do, notes=notes
    )


def _rows(before: RecurringSchedule | None, after: When) -> list[tuple[str, str, str]]:
    return [
        ("When", when_of(before) if before else "", after.text),
        ("Not before", _time(before.from_ms) if before else "", _time(after.from_ms)),
        ("Not after", _time(before.until_ms) if before else "", _time(after.until_ms)),
        ("At most so many runs", _count(before.max_runs) if before else "", _count(after.runs_max)),
        ("Missed runs", RULES[before.missed] if before else "", RULES[after.missed]),
    ]


def _count(number: int) -> str:
    return f"{number:,}" if number else "without end"


def _time(time_ms: int) -> str:
    """As `parse_time_ms` reads it; empty: none."""
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    return when.isoformat(timespec="milliseconds") if time_ms else ""


def _interval(every_ms: int) -> str:
    """As `parse_delay_ms` reads it."""
    for unit, unit_ms in _UNIT_MS:
        if every_ms and every_ms % unit_ms == 0:
            return f"{every_ms // unit_ms}{unit}"
    return ""
