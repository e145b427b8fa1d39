"""Setting a group's offsets: first what it would do, then exactly that."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from aerobee.cli.moments import Moment, parse_moment
from aerobee.cli.queue_places import offsets_at
from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.admin_groups import Group
from aerobee.cluster_view.route import MessageQueue
from aerobee.console.reset_plan import QueueReset, ResetPlan, places_text, read_places
from aerobee.console.visit import Visit
from aerobee.domain.names import RETRY_PREFIX
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import AerobeeError, InvalidArgument, QueueNotFound

TIMES_MAX: Final = 16
"""Queues of which the time of the first message that comes again, or is skipped, is read."""
OFFSET_END: Final = 1 << 63


async def preview(visit: Visit) -> Response:
    """The form, and once it is filled in what it would do. Changes nothing."""
    name = visit.name()
    group = await visit.admin.groups.describe(name)
    topic, place = visit.query.get("topic", ""), visit.query.get("to", "").strip()
    only = visit.query.get("queue", "").strip()
    topics = [each for each in group.topics if not each.startswith(RETRY_PREFIX)]
    plan, problem, since = None, "", None
    if topic and place:
        try:
            plan = await _plan(visit.admin, group, topic, place, only)
            since = await _since(visit.admin, plan)
        except AerobeeError as error:
            problem = str(error)
    return visit.render(
        "reset.html",
        group=group,
        topics=topics,
        topic=topic,
        to=place,
        only=only,
        plan=plan,
        places=[] if plan is None else places_text(plan),
        problem=problem,
        since=since,
    )


async def reset(visit: Visit) -> Response:
    """Sets the offsets that the preview showed."""
    name, form = visit.name(), await visit.form()
    topic = form["topic"]
    if form["confirm"] != name:
        raise InvalidArgument(
            f"nothing was changed: to confirm, type the group's name, {name}, as it is"
        )
    try:
        after = read_places(topic, form.all("place"))
    except ValueError:
        raise InvalidArgument("the form names no offsets: open the preview again") from None
    if not after or any(offset >= OFFSET_END for offset in after.values()):
        raise InvalidArgument("the form names no offsets: open the preview again")
    await visit.admin.groups.describe(name)  # No form makes a group.
    before = await visit.admin.offsets.committed(name, after)
    await visit.admin.offsets.reset(name, after)
    visit.changed("reset offsets", name, topic=topic, queues=len(after))
    changed = [(queue, before[queue], after[queue]) for queue in sorted(after)]
    return visit.render("reset_done.html", name=name, topic=topic, changed=changed)


async def _plan(admin: AdminClient, group: Group, topic: str, place: str, only: str) -> ResetPlan:
    """Raises AerobeeError."""
    to = _place(place)
    queues = [each.queue for each in (await admin.topics.describe(topic)).queues]
    if only:
        queues = [each for each in queues if f"{each.broker_name}:{each.queue_id}" == only]
        if not queues:
            raise QueueNotFound(f"topic {topic} has no queue {only!r}; write BROKER:ID")
    before = await admin.offsets.committed(group.name, queues)
    bounds = await admin.offsets.bounds(queues, of_master=True)
    return ResetPlan.of(before, await offsets_at(admin.offsets, bounds, to), bounds)


def _place(text: str) -> Moment | int:
    """Raises InvalidArgument."""
    if text.startswith("offset "):
        number = text.removeprefix("offset ").strip()
        if number.isascii() and number.isdigit() and int(number) < OFFSET_END:
            return int(number)
        raise InvalidArgument(f"{text!r} names no offset: write offset and a number")
    try:
        return parse_moment(text, now_ms=SystemClock().now_ms())
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


async def _since(admin: AdminClient, plan: ResetPlan) -> tuple[int, int] | None:
    """Store times of the first and the last message that come again or are skipped; None: there
    are none, or too many queues, or they cannot be read."""
    touched = [each for each in plan.queues if each.again or each.skipped]
    if not touched or len(touched) > TIMES_MAX:
        return None
    firsts, lasts = list[int](), list[int]()
    for each in touched:
        first = await _stored_ms(admin, each.queue, each.after if each.again else _begin(each))
        last = await _stored_ms(
            admin, each.queue, (each.before or 0) - 1 if each.again else each.after - 1
        )
        if first is None or last is None:
            return None
        firsts.append(first)
        lasts.append(last)
    return min(firsts), max(lasts)


def _begin(each: QueueReset) -> int:
    return max(each.before or 0, each.bounds.min_offset)


async def _stored_ms(admin: AdminClient, queue: MessageQueue, offset: int) -> int | None:
    try:
        read = await admin.messages.from_queue(queue, max(0, offset), max_messages=1)
    except AerobeeError:
        return None
    return read.messages[0].store_timestamp_ms if read.messages else None
