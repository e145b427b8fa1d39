"""Schedules that recur: listed, looked at, paused, resumed, run now, removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from aerobee.client_core.recurring import RecurringSchedule
from aerobee.console.listing import Column, listed
from aerobee.console.visit import Visit
from aerobee.console.words import length
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.printable import printable

BODY_CHARACTERS_MAX: Final = 4_000
SCHEDULES: Final[Sequence[Column[RecurringSchedule]]] = (
    Column("name", "Schedule", lambda each: each.name),
    Column("topic", "Topic", lambda each: each.message.topic),
    Column("when", "When"),
    Column("next", "Next run", lambda each: each.next_ms or None),
    Column("last", "Last run", lambda each: each.last_ms),
    Column("runs", "Runs", lambda each: each.runs, is_number=True),
    Column("missed", "Missed", lambda each: each.missed_runs, is_number=True),
    Column("state", "State", lambda each: state_of(each)),
)


def state_of(schedule: RecurringSchedule) -> str:
    if schedule.is_paused:
        return "paused"
    if schedule.has_ended:
        return "ended"
    return "held up" if schedule.trouble else "runs"


def when_of(schedule: RecurringSchedule) -> str:
    if schedule.cron:
        return f"{schedule.cron} ({schedule.zone})"
    return f"every {length(schedule.every_ms)}"


def page_of(name: str) -> str:
    """Names of schedules may have any character."""
    return f"/scheduled/recurring/one?{urlencode({'name': name})}"


async def all_schedules(visit: Visit) -> Response:
    """Those that run next first."""
    topic = visit.query.get("topic", "").strip()
    found = await visit.admin.schedules.recurring(topic)
    listing = listed(
        found,
        SCHEDULES,
        visit.query,
        path=visit.path,
        text=lambda each: f"{each.name} {each.message.topic}",
        sort="next",
        kept={"topic": topic} if topic else {},
    )
    return visit.render(
        "recurring.html",
        listing=listing,
        unanswered=found.unanswered,
        state_of=state_of,
        when_of=when_of,
        page_of=page_of,
    )


async def one_schedule(visit: Visit) -> Response:
    schedule = await visit.admin.schedules.find(visit.query.get("name", ""))
    # Only where nobody has to be asked whether bodies may be seen.
    shows_body = visit.settings.show_bodies and visit.session is None
    body = schedule.message.body[: 4 * BODY_CHARACTERS_MAX].decode("utf-8", "replace")
    return visit.render(
        "one_recurring.html",
        schedule=schedule,
        state=state_of(schedule),
        when=when_of(schedule),
        body=printable(body[:BODY_CHARACTERS_MAX], keep="\n\t") if shows_body else None,
        query=urlencode({"name": schedule.name}),
    )


async def act(visit: Visit) -> Response:
    form = await visit.form()
    name, wanted = form["name"], form["act"]
    schedules = visit.admin.schedules
    back = page_of(name)
    match wanted:
        case "pause":
            await schedules.pause(name)
            done = "is paused: it does not run until it is resumed"
        case "resume":
            await schedules.resume(name)
            done = "runs again; what it did not send meanwhile is not missed"
        case "run":
            await schedules.run_now(name)
            done = "has run once more"
        case "remove":
            if form["confirm"] != name:
                raise InvalidArgument(
                    f"nothing was changed: to confirm, type the schedule's name, {name}, as it is"
                )
            await schedules.remove(name)
            done, back = "is removed: it runs no more", "/scheduled/recurring"
        case _:
            raise InvalidArgument("nothing was changed: choose what to do")
    visit.changed(f"schedule: {wanted}", name)
    return visit.render("done.html", text=f"Schedule {name} {done}.", back=back)
