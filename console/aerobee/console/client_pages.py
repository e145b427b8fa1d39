"""Clients of every protocol: who is connected, from where, and what they hold."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from aerobee.console.listing import ROWS_PER_PAGE, SEARCH_CHARACTERS_MAX
from aerobee.console.standing_still import QUIET_MS
from aerobee.console.visit import Visit

PROTOCOLS: Final = {
    "aerobee": "Aerobee",
    "gRPC": "RocketMQ 5, gRPC",
    "remoting": "RocketMQ, remoting",
}


async def all_clients(visit: Visit) -> Response:
    """By client id; brokers search and cut, so that a page costs the same however many there are
    to show."""
    search = visit.query.get("q", "").strip()[:SEARCH_CHARACTERS_MAX]
    after = None
    if place := visit.query.get("after", ""):
        after = place, visit.query.get("group", "")
    found = await visit.admin.clients.list(search, after=after, max_clients=ROWS_PER_PAGE)
    return visit.render(
        "clients.html",
        found=found,
        search=search,
        is_first=after is None,
        protocols=PROTOCOLS,
        quiet_ms=QUIET_MS,
    )
