"""Groups by lag, and one group: its queues, who holds them, and why it stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from aerobee.cli.retry_words import retry_lines
from aerobee.client_core.admin_groups import Group, GroupQueueState
from aerobee.client_core.group_summaries import GroupSummaries, GroupSummary
from aerobee.console.listing import Column, listed
from aerobee.console.standing_still import reasons
from aerobee.console.visit import Visit
from aerobee.domain.names import check_group_name

QUEUES: Final[Sequence[Column[GroupQueueState]]] = (
    Column("topic", "Topic", lambda each: each.queue.topic),
    Column("broker", "Broker", lambda each: each.queue.broker_name),
    Column("queue", "Queue", lambda each: each.queue.queue_id, is_number=True),
    Column("held", "Held by", lambda each: each.lease_holder or ""),
    Column(
        "committed",
        "Committed",
        lambda each: -1 if each.committed_offset is None else each.committed_offset,
        is_number=True,
    ),
    Column("end", "End", lambda each: each.max_offset_end, is_number=True),
    Column("lag", "Unread", lambda each: each.lag, is_number=True),
)


async def all_groups(visit: Visit) -> Response:
    found = await visit.admin.groups.summaries()
    listing = listed(
        found.groups,
        _columns(found),
        visit.query,
        path=visit.path,
        text=lambda group: group.name,
        sort="-unread",
    )
    return visit.render("groups.html", found=found, listing=listing)


def _columns(found: GroupSummaries) -> Sequence[Column[GroupSummary]]:
    # With a broker away, no number is exact; what is known of it still has an order.
    is_whole = not found.unanswered
    return (
        Column("name", "Group", lambda each: each.name),
        Column(
            "unread",
            "Unread",
            lambda each: each.unread if is_whole else each.unread_min,
            is_number=True,
        ),
        Column("oldest", "Oldest unread", lambda each: each.oldest_age_ms, is_number=True),
        Column("in_flight", "In flight", lambda each: each.in_flight, is_number=True),
        Column("members", "Members", lambda each: each.members, is_number=True),
        Column("topics", "Topics", lambda each: each.topics, is_number=True),
        Column("dead", "Dead letters", lambda each: each.dead_letters, is_number=True),
    )


async def open_group(visit: Visit) -> Response:
    """For who may see some groups, but no list of all."""
    name = visit.query.get("group", "").strip()
    check_group_name(name)
    return RedirectResponse(f"/groups/{quote(name, safe='')}", 303)


async def one_group(visit: Visit) -> Response:
    name = visit.name()
    group, summaries = await asyncio.gather(
        visit.admin.groups.describe(name), visit.admin.groups.summaries(group=name, with_own=True)
    )
    summary = summaries.groups[0] if summaries.groups else None
    listing = listed(
        group.queues,
        QUEUES,
        visit.query,
        path=visit.path,
        text=lambda each: (
            f"{each.queue.topic} {each.queue.broker_name}:{each.queue.queue_id} "
            f"{each.lease_holder or ''}"
        ),
        sort="-lag",
    )
    return visit.render(
        "group.html",
        group=group,
        summary=summary,
        listing=listing,
        reasons=reasons(group, summary),
        retries=retry_lines(group.retry) if group.retry else [],
        held=_held(group),
    )


def _held(group: Group) -> dict[str, int]:
    """How many queues each member holds."""
    found: dict[str, int] = {}
    for each in group.queues:
        if each.lease_holder is not None:
            found[each.lease_holder] = found.get(each.lease_holder, 0) + 1
    return found
