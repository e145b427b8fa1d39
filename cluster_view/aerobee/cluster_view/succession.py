"""Which queues a group does not read yet, because the queues whose keys they took over are not
finished.

A topic that is retired from a broker group has there queues that take no new messages, each with a
successor. All messages of a key are in the old queue first and in its successor then. A group that
begins with the successor after it has finished the old queue, whose broker takes nothing more, so
handles a key's messages in the order in which they were sent.

Owns: what is remembered of finished queues. What a group has finished it has finished for good,
also if the broker itself still delivers a message there that had been delayed or in a transaction:
such messages come when they come.
Bounds: one question per broker group and `AGAIN_S` for each group and topic; at most `KNOWN_MAX`
pairs are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from aerobee.cluster_view.methods import QUERY_BOUNDS, QUERY_OFFSETS, Method
from aerobee.cluster_view.route import MessageQueue, TopicRoute
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError
from aerobee.v1 import broker_pb2, common_pb2

AGAIN_S: Final = 1.0
"""How often unfinished queues are asked about."""
KNOWN_MAX: Final = 1_000
TIMEOUT_MS: Final = 3_000

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class Peers(Protocol):
    """Calls brokers; `Channels` is one."""

    async def call(
        self, address: str, method: Method[Q, R], request: Q, *, timeout_ms: int = 3_000
    ) -> R:
        """Raises AerobeeError."""
        ...


@dataclass(slots=True)
class _Known:
    """Of one group and topic."""

    asked_s: float
    finished: set[MessageQueue] = field(default_factory=set)
    """Retired queues."""


class Succession:
    """On the loop; of one client, or of one node for all groups that poll there."""

    def __init__(self, peers: Peers, clock: Clock) -> None:
        self._peers = peers
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}

    async def waiting(self, route: TopicRoute, group: str) -> Mapping[MessageQueue, MessageQueue]:
        """Queues that the group does not read yet, each with the retired queue that it has not
        finished. Nothing waits in a topic whose order does not matter. A broker that does not
        answer has finished nothing."""
        if not (route.successors and route.keeps_order):
            return {}
        known = self._of(group, route.topic)
        open_queues = [queue for queue in route.successors if queue not in known.finished]
        now_s = self._clock.monotonic_s()
        if open_queues and now_s >= known.asked_s + AGAIN_S:
            known.asked_s = now_s
            for broker_name in sorted({queue.broker_name for queue in open_queues}):
                asked = [queue for queue in open_queues if queue.broker_name == broker_name]
                known.finished.update(await self._finished(route, group, asked))
        return {
            successor: queue
            for queue, successor in route.successors.items()
            if queue not in known.finished
        }

    def _of(self, group: str, topic: str) -> _Known:
        known = self._known.pop((group, topic), None)
        if known is None:
            known = _Known(asked_s=self._clock.monotonic_s() - AGAIN_S)
            if len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]  # not asked about for the longest time
        self._known[group, topic] = known
        return known

    async def _finished(
        self, route: TopicRoute, group: str, queues: Sequence[MessageQueue]
    ) -> list[MessageQueue]:
        """Those of one broker's queues that take no more messages, all of which the group has
        finished."""
        wanted = [
            broker_pb2.TopicQueue(topic=queue.topic, queue_id=queue.queue_id) for queue in queues
        ]
        try:
            address = route.master_address(queues[0].broker_name)
            # The bounds first: what is committed beyond them later was committed of these messages.
            bounds = await self._peers.call(
                address,
                QUERY_BOUNDS,
                broker_pb2.QueryBoundsRequest(queues=wanted),
                timeout_ms=TIMEOUT_MS,
            )
            offsets = await self._peers.call(
                address,
                QUERY_OFFSETS,
                broker_pb2.QueryOffsetsRequest(group=group, queues=wanted),
                timeout_ms=TIMEOUT_MS,
            )
        except AerobeeError:
            return []
        committed = {
            each.queue_id: each.offset
            for each in offsets.offsets
            if each.topic == route.topic and each.code == common_pb2.OK
        }
        return [
            queue
            for queue, found in zip(queues, bounds.bounds, strict=True)
            if found.status.code == common_pb2.OK
            and found.retired
            and max(committed.get(queue.queue_id, 0), found.min_offset) >= found.max_offset
        ]
