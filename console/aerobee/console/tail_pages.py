"""The live tail of a topic: messages as they come, by server-sent events.

A tail belongs to its page: it ends with it, with its visitor's session, with the console, and after
`LIFE_S` in any case. A broker or a nameserver that is away holds it up and does not end it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from aerobee.client_core.message import ReceivedMessage
from aerobee.console.bodies import preview_of
from aerobee.console.tailing import LASTING, Look, Tail, Wish
from aerobee.console.visit import Visit
from aerobee.domain.tag_expression import sendable_tags
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, Busy
from aerobee.runtime.printable import printable

TICK_S: Final = 1.0
LIFE_S: Final = 15 * 60.0
TAILS_MAX: Final = 20
"""Of all visitors together."""


class TailPages:
    """Owns: how many tails are open."""

    def __init__(self, clock: Clock, *, tick_s: float = TICK_S) -> None:
        self._clock = clock
        self._tick_s = tick_s
        self._open = 0
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Every tail ends."""
        self._stopping.set()

    async def show(self, visit: Visit) -> Response:
        topic = visit.name()
        await visit.admin.topics.describe(topic)
        tags, sql = visit.query.get("tags", "").strip(), visit.query.get("sql", "").strip()
        query = urlencode({"tags": tags, "sql": sql})
        return visit.render("tail.html", topic=topic, tags=tags, sql=sql, query=query)

    async def events(self, visit: Visit) -> Response:
        """Raises Busy, FilterIllegal, AerobeeError."""
        if self._open >= TAILS_MAX:
            raise Busy(f"{TAILS_MAX} live tails are open, which is the limit: close some of them")
        tags, sql = visit.query.get("tags", "").strip(), visit.query.get("sql", "").strip()
        sendable_tags(tags or "*")
        await visit.admin.topics.describe(visit.name())  # else the refusal would be an event
        tail = Tail(visit.admin, visit.name(), Wish(tags or "*", sql))
        shows_bodies = visit.settings.show_bodies

        def is_over() -> bool:
            session = visit.session
            return session is not None and not visit.sessions.holds(
                visit.token, session, self._clock.monotonic_s()
            )

        return StreamingResponse(
            self.stream(tail, is_over, shows_bodies=shows_bodies),
            media_type="text/event-stream",
        )

    async def stream(
        self, tail: Tail, is_over: Callable[[], bool], *, shows_bodies: bool
    ) -> AsyncIterator[str]:
        """Server-sent events, until `is_over`: `look`, `trouble`, and `over` as the last."""
        self._open += 1
        try:
            end_s = self._clock.monotonic_s() + LIFE_S
            while self._clock.monotonic_s() < end_s:
                if is_over():
                    yield _event("over", {"why": "The session has ended: sign in again."})
                    return
                try:
                    yield _event("look", _told(await tail.look(), shows_bodies=shows_bodies))
                except LASTING as error:
                    yield _event("over", {"why": printable(str(error))})
                    return
                except AerobeeError as error:
                    yield _event("trouble", {"why": printable(str(error))})
                if await self._stops():
                    yield _event("trouble", {"why": "The console is stopping."})
                    return
            yield _event("over", {"why": "It ran for 15 minutes: reload the page to go on."})
        finally:
            self._open -= 1

    async def _stops(self) -> bool:
        """After a tick, or at once."""
        try:
            async with asyncio.timeout(self._tick_s):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True


def _event(kind: str, document: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(document)}\n\n"


def _told(look: Look, *, shows_bodies: bool) -> dict[str, Any]:
    return {
        "messages": [_row(each, shows_bodies=shows_bodies) for each in look.messages],
        "skipped": look.skipped,
        "unanswered": [printable(each) for each in look.unanswered],
    }


def _row(message: ReceivedMessage, *, shows_bodies: bool) -> dict[str, Any]:
    """Pages put these in as texts, never as HTML."""
    queue = message.queue
    query = {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "offset": message.queue_offset,
        "id": message.message_id,
    }
    return {
        "href": f"/message?{urlencode(query)}",
        "id": printable(message.message_id),
        "stored_ms": message.store_timestamp_ms,
        "queue": printable(f"{queue.broker_name}:{queue.queue_id}"),
        "offset": message.queue_offset,
        "tag": printable(message.tag or "-"),
        "keys": printable(" ".join(message.keys) or "-"),
        "body": preview_of(message) if shows_bodies else "hidden",
    }
