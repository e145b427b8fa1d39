"""Deleting a topic or a group: first what would be lost, then, by its name, exactly that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from aerobee.client_core.admin_client import AdminClient
from aerobee.console.visit import Visit
from aerobee.console.words import counted
from aerobee.domain.names import check_topic_name, is_system_topic
from aerobee.runtime.errors import AccessDenied, InvalidArgument

READERS_MAX: Final = 20
FORCE: Final = "end"


@dataclass(frozen=True, slots=True)
class Loss:
    """What would be lost."""

    figures: Sequence[tuple[str, int | None]]
    """None: not known."""
    notes: Sequence[str]
    unanswered: Sequence[str]


async def topic_preview(visit: Visit) -> Response:
    name = visit.name()
    return _preview(visit, "topic", name, await _topic_loss(visit.admin, name))


async def group_preview(visit: Visit) -> Response:
    name = visit.name()
    group = await visit.admin.groups.describe(name)
    found = await visit.admin.groups.summaries(group=name, with_own=True)
    summary = found.groups[0] if found.groups else None
    committed = [each for each in group.queues if each.committed_offset is not None]
    notes = ["messages stay; a group of this name that begins later starts anew"]
    if summary is not None and summary.dead_letters:
        notes.append("its dead letters can no longer be resent to it alone")
    loss = Loss(
        figures=(
            ("Members", None if group.unanswered else len(group.members)),
            ("Offsets", None if group.unanswered else len(committed)),
            ("Unread messages", None if summary is None else summary.unread),
            ("Dead letters", None if summary is None else summary.dead_letters),
        ),
        notes=notes,
        unanswered=group.unanswered,
    )
    return _preview(visit, "group", name, loss, has_members=bool(group.members))


async def delete_topic(visit: Visit) -> Response:
    name, _ = visit.name(), await _confirmed(visit)
    await visit.admin.topics.delete(name)
    visit.changed("delete topic", name)
    text = f"Topic {name} is deleted, with its messages and all groups' offsets on it."
    return visit.render("done.html", text=text, back="/topics")


async def delete_group(visit: Visit) -> Response:
    name, is_forced = visit.name(), await _confirmed(visit)
    deleted = await visit.admin.groups.delete(name, force=is_forced)
    visit.changed("delete group", name, offsets=deleted.offsets, members=deleted.members_ended)
    ended = counted(deleted.members_ended, "session")
    text = f"Group {name} is deleted: {counted(deleted.offsets, 'offset')}, {ended} ended."
    return visit.render("done.html", text=text, back="/groups")


async def _confirmed(visit: Visit) -> bool:
    """Whether sessions of members are to be ended. Raises InvalidArgument: the name was not typed;
    AccessDenied, FormRefused."""
    name, form = visit.name(), await visit.form()
    if form["confirm"] != name:
        raise InvalidArgument(f"nothing was deleted: to confirm, type the name, {name}, as it is")
    return form["members"] == FORCE


async def _topic_loss(admin: AdminClient, name: str) -> Loss:
    """Raises TopicNotFound, InvalidArgument, and as the calls do."""
    check_topic_name(name)
    if is_system_topic(name):
        raise InvalidArgument(f"{name} is a topic of the brokers' own, which is never deleted")
    described = await admin.topics.describe(name)
    queues = [each.queue for each in described.queues]
    (bounds, silent), groups, waiting, schedules = await asyncio.gather(
        admin.offsets.bounds_by_broker(queues),
        admin.groups.summaries(topic=name),
        admin.schedules.list(name, max_messages=1),
        _schedules(admin, name),
    )
    readers = sorted(groups.groups, key=lambda each: -each.unread_min)
    unanswered = sorted({*silent, *groups.unanswered, *waiting.unanswered})
    notes = []
    if readers:
        names = ", ".join(each.name for each in readers[:READERS_MAX])
        more = f", and {len(readers) - READERS_MAX} more" if len(readers) > READERS_MAX else ""
        notes.append(f"groups that read it lose their offsets on it: {names}{more}")
    if waiting.messages:
        notes.append("messages that wait for their time are never delivered")
    if schedules:
        notes.append(f"recurring schedules send to it, and fail from then on: {schedules}")
    notes.append("producers that still send to it get an error, or make it anew if topics begin so")
    is_whole = not unanswered
    return Loss(
        figures=(
            ("Messages", sum(each.count for each in bounds.values()) if is_whole else None),
            ("Queues", len(queues)),
            ("Groups that read it", len(readers) if is_whole else None),
            ("Unread, over all groups", _sum([each.unread for each in readers], is_whole)),
        ),
        notes=notes,
        unanswered=unanswered,
    )


async def _schedules(admin: AdminClient, topic: str) -> str:
    """Names; empty: none, or they may not be seen."""
    try:
        return ", ".join(sorted({each.name for each in await admin.schedules.recurring(topic)}))
    except AccessDenied:
        return ""


def _sum(counts: Sequence[int | None], is_whole: bool) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if is_whole and len(known) == len(counts) else None


def _preview(
    visit: Visit, kind: str, name: str, loss: Loss, *, has_members: bool = False
) -> Response:
    return visit.render(
        "delete.html",
        kind=kind,
        name=name,
        loss=loss,
        has_members=has_members,
        force=FORCE,
        list_path=f"/{kind}s",
        back=f"/{kind}s/{quote(name, safe='')}",
    )
