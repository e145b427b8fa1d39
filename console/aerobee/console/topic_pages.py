"""Topics, and one topic: its queues, what they hold, how fast they grow, and who reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from aerobee.client_core.admin_topics import Topic
from aerobee.client_core.offsets import QueueBounds
from aerobee.cluster_view.route import MessageQueue
from aerobee.console.listing import Column, listed
from aerobee.console.rates import Rates
from aerobee.console.visit import Visit
from aerobee.runtime.clock import Clock

TYPE: Final = "message.type"
TOPICS: Final[Sequence[Column[Topic]]] = (
    Column("name", "Topic", lambda each: each.name),
    Column("queues", "Queues", lambda each: each.queues, is_number=True),
    Column("type", "Type", lambda each: each.attributes.get(TYPE, "")),
    Column("permission", "Clients may", lambda each: each.permission),
    Column("messages", "Messages", is_number=True),
    Column("rate", "In", is_number=True),
    Column("last", "Newest message"),
)
"""What brokers must be asked for, which is asked for the rows of one page only, cannot be sorted
by."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What queues hold together; None: unknown."""

    messages: int | None = 0
    rate_per_s: float | None = None
    last_ms: int | None = 0


class TopicPages:
    """Owns: the rates."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rates = Rates()

    async def all_topics(self, visit: Visit) -> Response:
        listing = listed(
            await visit.admin.topics.list(),
            TOPICS,
            visit.query,
            path=visit.path,
            text=lambda each: each.name,
            sort="name",
        )
        queues = {
            topic.name: [
                MessageQueue(topic.name, broker_name, queue_id)
                for broker_name, count in topic.queues_by_broker.items()
                for queue_id in range(count)
            ]
            for topic in listing.rows
        }
        wanted = [queue for some in queues.values() for queue in some]
        bounds, unanswered = await visit.admin.offsets.bounds_by_broker(wanted)
        rates = self._rates.look(bounds, self._clock.monotonic_s())
        holdings = {name: _holding(some, bounds, rates) for name, some in queues.items()}
        return visit.render(
            "topics.html", listing=listing, holdings=holdings, unanswered=unanswered
        )

    async def one_topic(self, visit: Visit) -> Response:
        name = visit.name()
        topic = await visit.admin.topics.describe(name)
        queues = [each.queue for each in topic.queues]
        (bounds, unanswered), groups = await asyncio.gather(
            visit.admin.offsets.bounds_by_broker(queues),
            visit.admin.groups.summaries(topic=name),
        )
        rates = self._rates.look(bounds, self._clock.monotonic_s())
        listing = listed(
            topic.queues,
            (
                Column("broker", "Broker", lambda each: each.queue.broker_name),
                Column("queue", "Queue", lambda each: each.queue.queue_id, is_number=True),
                Column("min", "Begin", lambda each: _min(bounds.get(each.queue)), is_number=True),
                Column("end", "End", lambda each: _end(bounds.get(each.queue)), is_number=True),
                Column("messages", "Messages", lambda each: _count(bounds.get(each.queue)),
                       is_number=True),
                Column("rate", "In", lambda each: rates.get(each.queue), is_number=True),
                Column("last", "Newest message", lambda each: _last(bounds.get(each.queue))),
            ),
            visit.query,
            path=visit.path,
            text=lambda each: f"{each.queue.broker_name}:{each.queue.queue_id:06}",
            sort="broker",
        )  # fmt: skip
        return visit.render(
            "topic.html",
            topic=topic,
            listing=listing,
            bounds=bounds,
            rates=rates,
            total=_holding(queues, bounds, rates),
            groups=groups,
            unanswered=sorted({*unanswered, *groups.unanswered}),
        )


def _holding(
    queues: Sequence[MessageQueue],
    bounds: Mapping[MessageQueue, QueueBounds],
    rates: Mapping[MessageQueue, float | None],
) -> Holding:
    if any(queue not in bounds for queue in queues):
        return Holding(None, None, None)
    known = [rates[queue] for queue in queues]
    return Holding(
        messages=sum(bounds[queue].count for queue in queues),
        rate_per_s=None if None in known else sum(rate or 0.0 for rate in known),
        last_ms=max((bounds[queue].last_store_timestamp_ms for queue in queues), default=0),
    )


def _min(held: QueueBounds | None) -> int | None:
    return None if held is None else held.min_offset


def _end(held: QueueBounds | None) -> int | None:
    return None if held is None else held.max_offset_end


def _count(held: QueueBounds | None) -> int | None:
    return None if held is None else held.count


def _last(held: QueueBounds | None) -> int | None:
    return None if held is None else held.last_store_timestamp_ms
