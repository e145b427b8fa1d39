"""The stream of one member: events of its group and its leases, in order."""

from __future__ import annotations

import asyncio
from collections import deque

from aerobee.broker.edge.own.convert import members_changed, status_of
from aerobee.broker.groups.membership import GroupView
from aerobee.broker.groups.queue_leases import Lease
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError
from aerobee.v1 import broker_pb2


class MemberSession:
    """The events to send to one member, in order.

    Invariant: after `on_ended` nothing is added; a view that was not sent yet is replaced by a
    newer one, so that a storm of changes costs one message.
    """

    def __init__(self, offsets: ConsumerOffsets, clock: Clock) -> None:
        self._offsets = offsets
        self._clock = clock
        self._events: deque[broker_pb2.GroupEvent] = deque()
        self._view: GroupView | None = None
        self._finished = False
        self._changed = asyncio.Event()

    # ------------------------------------------------------------ told of membership and leases

    def on_members(self, view: GroupView) -> None:
        self._view = view
        self._changed.set()

    def on_granted(self, lease: Lease) -> None:
        committed = self._offsets.query(lease.key)
        tried = self._offsets.tried(lease.key)
        self.add(
            broker_pb2.GroupEvent(
                granted=broker_pb2.LeaseGranted(
                    topic=lease.key.topic,
                    queue_id=lease.key.queue_id,
                    epoch=lease.epoch,
                    committed_offset=committed or 0,
                    never_committed=committed is None,
                    tried_offset=0 if tried is None else tried.offset,
                    attempts=0 if tried is None else tried.attempts,
                )
            )
        )

    def on_revoked(self, lease: Lease, reason: str) -> None:
        self.add(
            broker_pb2.GroupEvent(
                revoked=broker_pb2.LeaseRevoked(
                    topic=lease.key.topic,
                    queue_id=lease.key.queue_id,
                    epoch=lease.epoch,
                    reason=reason,
                )
            )
        )

    def on_ended(self, error: AerobeeError) -> None:
        self.add(broker_pb2.GroupEvent(failed=status_of(error)))
        self.finish()

    # ------------------------------------------------------------ used by the servicer

    @property
    def pending(self) -> int:
        """Events that the client has not taken yet."""
        return len(self._events)

    def add(self, event: broker_pb2.GroupEvent, *, first: bool = False) -> None:
        if self._finished:
            return
        if first:
            self._events.appendleft(event)
        else:
            self._events.append(event)
        self._changed.set()

    def finish(self) -> None:
        """No more events; what is pending still goes out."""
        self._finished = True
        self._changed.set()

    async def next_event(self) -> broker_pb2.GroupEvent | None:
        """The next event to send; None when the stream ends."""
        while True:
            if self._events:
                return self._events.popleft()
            if self._finished:
                return None
            if self._view is not None:
                view, self._view = self._view, None
                return broker_pb2.GroupEvent(
                    members=members_changed(view, self._clock.monotonic_s())
                )
            self._changed.clear()
            await self._changed.wait()
