"""Finding a message by key, id, time or offset, and one message: its body, and where it is now.

Looking joins no group and commits nothing. A body is read as a consumer without a group would read
it: with access control, that needs the right to receive (Sub) from the topic. Who may only look
(Get) sees everything but bodies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from aerobee.cli.moments import MomentKind, parse_moment
from aerobee.cli.queue_places import offsets_at
from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import ReceivedMessage
from aerobee.client_core.schedules import WaitingMessage
from aerobee.client_core.transactions import OpenTransaction
from aerobee.cluster_view.route import MessageQueue
from aerobee.console.bodies import Body, body_of, preview_of
from aerobee.console.visit import Visit
from aerobee.console.whereabouts import Whereabouts, whereabouts
from aerobee.domain.names import DEAD_LETTER_PREFIX
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import (
    AccessDenied,
    AerobeeError,
    InvalidArgument,
    MessageNotFound,
    TopicNotFound,
)

FOUND_MAX: Final = 50
QUEUES_READ_MAX: Final = 64
"""By time: of more queues, only the first ones are read."""
_OFFSET_MESSAGE_ID: Final = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_PLACE: Final = re.compile(
    r"(?P<broker>.{1,255}):(?P<queue>\d{1,9}):(?P<offset>\d{1,18})", re.ASCII
)
WAYS: Final = {
    "key": "key",
    "id": "message id",
    "time": "time",
    "offset": "BROKER:QUEUE:OFFSET",
}


@dataclass(slots=True)
class Search:
    """What was found."""

    messages: Sequence[ReceivedMessage] = ()
    waiting: Sequence[WaitingMessage] = ()
    """They wait for a time, and are in no queue yet."""
    open: Sequence[OpenTransaction] = ()
    """Their transaction has not ended."""
    more: bool = False
    unanswered: tuple[str, ...] = ()
    note: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.messages or self.waiting or self.open)


async def search(visit: Visit) -> Response:
    topic, value = visit.query.get("topic", "").strip(), visit.query.get("value", "").strip()
    by = visit.query.get("by", "key")
    found, problem, status = None, "", 200
    if value and (topic or by == "id"):
        try:
            found = await _found(visit.admin, topic, by, value)
        except (InvalidArgument, TopicNotFound, MessageNotFound) as error:
            problem, status = str(error), 404 if isinstance(error, MessageNotFound) else 400
    elif value:
        problem = "Name the topic; only an offset message id says where its message is."
    return visit.render(
        "messages.html",
        status,
        topic=topic,
        by=by if by in WAYS else "key",
        value=value,
        ways=WAYS,
        found=found,
        problem=problem,
        preview=_preview(visit),
    )


def _preview(visit: Visit) -> object:
    """Bodies in a list: only where nobody has to be asked whether they may be seen."""
    return preview_of if visit.settings.show_bodies and visit.session is None else None


async def _found(admin: AdminClient, topic: str, by: str, value: str) -> Search:
    match by:
        case "id":
            return await _by_id(admin, topic, value)
        case "time":
            return await _by_time(admin, topic, value)
        case "offset":
            return await _by_offset(admin, topic, value)
    found = await admin.messages.by_key(topic, value, max_messages=FOUND_MAX)
    search = Search(found.messages, more=found.more, unanswered=found.unanswered)
    return await _with_others(admin, search, topic, value)


async def _by_id(admin: AdminClient, topic: str, value: str) -> Search:
    if not topic:
        if not _OFFSET_MESSAGE_ID.fullmatch(value):
            raise InvalidArgument(
                "this is no offset message id (32 or 56 hex digits); if it is the id that its "
                "producer gave the message, name the topic, too"
            )
        return Search([await admin.messages.by_id(value)])
    found = await admin.messages.by_unique_key(topic, value, max_messages=FOUND_MAX)
    search = Search(found.messages, more=found.more, unanswered=found.unanswered)
    if not found.messages and _OFFSET_MESSAGE_ID.fullmatch(value):
        try:
            return Search([await admin.messages.by_id(value)])
        except MessageNotFound:
            pass
    return await _with_others(admin, search, topic, value)


async def _with_others(admin: AdminClient, search: Search, topic: str, value: str) -> Search:
    """Also what is in no queue yet."""
    waiting = await admin.schedules.list(topic, key=value, max_messages=FOUND_MAX)
    opened = await admin.transactions.list(topic, transaction_id=value, max_transactions=FOUND_MAX)
    silent = {*search.unanswered, *waiting.unanswered, *opened.unanswered}
    search.waiting, search.open = waiting.messages, opened.transactions
    search.unanswered = tuple(sorted(silent))
    return search


async def _by_offset(admin: AdminClient, topic: str, value: str) -> Search:
    place = _PLACE.fullmatch(value)
    if place is None:
        raise InvalidArgument(
            f"{value!r} is no place: write BROKER:QUEUE:OFFSET, such as broker-a:3:1200"
        )
    queue = MessageQueue(topic, place["broker"], int(place["queue"]))
    read = await admin.messages.from_queue(queue, int(place["offset"]), max_messages=FOUND_MAX)
    note = (
        ""
        if read.messages
        else f"The queue has no message there; it ends before offset {read.max_offset_end:,}."
    )
    return Search(read.messages, more=read.next_offset < read.max_offset_end, note=note)


async def _by_time(admin: AdminClient, topic: str, value: str) -> Search:
    """The first messages from a time on, over all queues."""
    try:
        moment = parse_moment(value, now_ms=SystemClock().now_ms())
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    queues = [each.queue for each in (await admin.topics.describe(topic)).queues]
    bounds, unanswered = await admin.offsets.bounds_by_broker(queues)
    some = dict(sorted(bounds.items())[:QUEUES_READ_MAX])
    places = await offsets_at(admin.offsets, some, moment)
    messages: list[ReceivedMessage] = []
    for queue, offset in places.items():
        if moment.kind is MomentKind.LAST:
            # What is newest, not what is to come.
            offset = max(some[queue].min_offset, offset - FOUND_MAX)
        if offset < some[queue].max_offset_end:
            read = await admin.messages.from_queue(queue, offset, max_messages=FOUND_MAX)
            messages += read.messages
    is_last = moment.kind is MomentKind.LAST
    messages.sort(key=lambda each: each.store_timestamp_ms, reverse=is_last)
    note = ""
    if len(bounds) > len(some):
        note = f"Only {len(some)} of {len(bounds):,} queues were read."
    return Search(
        messages[:FOUND_MAX],
        more=len(messages) > FOUND_MAX,
        unanswered=unanswered,
        note=note,
    )


async def one_message(visit: Visit) -> Response:
    queue, offset = _queue_of(visit)
    message, body = await _message(visit, queue, offset)
    groups: list[Whereabouts] = []
    left_out, problem = 0, ""
    try:
        groups, left_out = await whereabouts(visit.admin, message)
    except AerobeeError as error:
        problem = str(error)
    return visit.render(
        "message.html",
        message=message,
        body=body,
        groups=groups,
        left_out=left_out,
        problem=problem,
        as_bytes=visit.query.get("as") == "bytes",
        dead_of=_dead_of(queue.topic),
    )


def _dead_of(topic: str) -> str:
    """The group whose dead letters these are; empty: they are none."""
    return topic.removeprefix(DEAD_LETTER_PREFIX) if topic.startswith(DEAD_LETTER_PREFIX) else ""


async def _message(visit: Visit, queue: MessageQueue, offset: int) -> tuple[ReceivedMessage, Body]:
    """Raises AerobeeError."""
    hidden = ""
    try:
        read = await visit.admin.messages.from_queue(queue, offset, max_messages=1)
        found = next((each for each in read.messages if each.queue_offset == offset), None)
    except AccessDenied as error:
        unique_key = visit.query.get("id", "")
        if not unique_key:
            raise
        # Who may look without receiving finds it by its id, without its body.
        some = await visit.admin.messages.by_unique_key(queue.topic, unique_key)
        found = next(
            (each for each in some.messages if (each.queue, each.queue_offset) == (queue, offset)),
            None,
        )
        hidden = f"The body is hidden: {error}"
    if found is None:
        raise MessageNotFound(
            f"queue {queue} has no message at offset {offset}: retention may have removed it"
        )
    if not visit.settings.show_bodies:
        hidden = "This console does not show bodies (--hide-bodies)."
    if hidden:
        return found, Body("", hidden)
    return found, body_of(found, as_bytes=visit.query.get("as") == "bytes")


def _queue_of(visit: Visit) -> tuple[MessageQueue, int]:
    query = visit.query
    queue_id, offset = query.get("queue", ""), query.get("offset", "")
    if not all(each.isascii() and each.isdigit() and len(each) < 19 for each in (queue_id, offset)):
        raise InvalidArgument("the address names no message: open it from a list")
    return MessageQueue(query.get("topic", ""), query.get("broker", ""), int(queue_id)), int(offset)
