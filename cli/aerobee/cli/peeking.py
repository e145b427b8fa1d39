"""Reading a topic without a group: queues from a place on, and no trace of it in the cluster.

Each queue is read by a task of its own that is at most a few answers ahead of what is printed. A
change of master is outlived; a broker group that stays away ends it, as nobody takes its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from aerobee import AdminClient
from aerobee.cli.moments import Moment
from aerobee.cli.queue_places import chosen_queues, offsets_at
from aerobee.client_core import MessageQueue, Messages, ReceivedMessage
from aerobee.consumer_client.filters import Expression, is_wanted
from aerobee.domain.sql_filter.expression import SqlExpression

WAIT_S = 1.0
"""How long a broker waits for a new message before it answers that there is none."""
ANSWERS_AHEAD = 4


async def peek(
    admin: AdminClient,
    topic: str,
    *,
    queues: tuple[str, ...],
    place: Moment | int,
    expression: Expression,
    idle_timeout_s: float | None,
    show: Callable[[Sequence[ReceivedMessage]], bool],
) -> None:
    """Show messages as they come, until `show` wants no more or none comes for `idle_timeout_s`.

    Args:
        queues: as `--queue` names them; none: all.
        place: where in each queue, a moment or an offset.

    Raises:
        TopicNotFound; NoBrokerAvailable, Unreachable, DeadlineExceeded: a queue cannot be read.
    """
    chosen = chosen_queues(await admin.topics.describe(topic), queues)
    bounds = await admin.offsets.bounds(chosen)
    places = await offsets_at(admin.offsets, bounds, place)
    found: asyncio.Queue[Sequence[ReceivedMessage]] = asyncio.Queue(ANSWERS_AHEAD)
    async with asyncio.TaskGroup() as tasks:
        readers = [
            tasks.create_task(_read(admin.messages, queue, first, expression, found), name="peek")
            for queue, first in places.items()
        ]
        try:
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(idle_timeout_s):
                        some = await found.get()
                    if not show(some):
                        break
        finally:
            for reader in readers:
                reader.cancel()


async def _read(
    messages: Messages,
    queue: MessageQueue,
    offset: int,
    expression: Expression,
    found: asyncio.Queue[Sequence[ReceivedMessage]],
) -> None:
    tags, sql = (
        ("*", expression.text) if isinstance(expression, SqlExpression) else (expression, "")
    )
    while True:
        read = await messages.from_queue(queue, offset, tags=tags, sql=sql, wait=WAIT_S)
        offset = read.next_offset
        some = [each for each in read.messages if is_wanted(each, expression)]
        if some:
            await found.put(some)
