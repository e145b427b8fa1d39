"""Messages that wait for their time: found, recalled, delivered now, moved."""

from __future__ import annotations

from starlette.responses import Response

from aerobee.cli.moments import parse_time_ms
from aerobee.console.listing import ROWS_PER_PAGE
from aerobee.console.visit import Visit
from aerobee.runtime.errors import InvalidArgument


async def all_waiting(visit: Visit) -> Response:
    """Those due first."""
    topic, key = visit.query.get("topic", "").strip(), visit.query.get("key", "").strip()
    begin_ms = _whole(visit.query.get("from", ""))
    found = await visit.admin.schedules.list(
        topic, key=key, begin_ms=begin_ms, max_messages=ROWS_PER_PAGE
    )
    return visit.render("scheduled.html", found=found, topic=topic, key=key, begin_ms=begin_ms)


async def change(visit: Visit) -> Response:
    form = await visit.form()
    act, handle, name = form["act"], form["handle"], form["name"]
    schedules = visit.admin.schedules
    if act == "recall":
        if form["confirm"] != "recall":
            raise InvalidArgument("nothing was changed: to confirm, type recall")
        await schedules.recall(handle)
        done = "was recalled: it is never delivered"
    elif act == "now":
        await schedules.deliver_now(handle)
        done = "is delivered now"
    elif act == "move":
        try:
            deliver_ms = parse_time_ms(form["to"].strip())
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        await schedules.move(handle, deliver_ms)
        done = "waits for its new time"
    else:
        raise InvalidArgument("nothing was changed: choose what to do")
    visit.changed(f"scheduled message: {act}", name)
    return visit.render("done.html", text=f"Message {name} {done}.", back="/scheduled")


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
