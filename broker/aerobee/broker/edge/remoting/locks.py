"""Locks of queues that are consumed in order.

A member locks a queue before it reads it, and renews the lock. Locks are in memory, but who got one
last is noted with the queue's offset, in the offset journal. So a new master knows whom to wait
for: in its first seconds, only the last holder gets a lock anew. The others wait until it has given
the queue back, or does not believe any more that it holds it.

Owns: this waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.self_assigned import SelfAssigned
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import json_bodies
from aerobee.rocketmq_remoting.heartbeats import Subscribed
from aerobee.rocketmq_remoting.queues import queue_object, read_queues
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, DeadlineExceeded

TRUSTED_S: Final = 30.0
"""How long clients trust a lock that they cannot renew."""
_SAFE_S: Final = 2.5


class OrderLocks:
    """On the loop."""

    def __init__(
        self,
        broker_name: str,
        members: SelfAssigned[Subscribed],
        offsets: ConsumerOffsets,
        clock: Clock,
        *,
        check_master: Callable[[], None],
    ) -> None:
        """`check_master` raises NotMaster."""
        self._broker_name = broker_name
        self._members = members
        self._offsets = offsets
        self._clock = clock
        self._check_master = check_master
        self._waits_until_s: float | None = None
        """None: this replica is not the master."""
        self._given_back: set[GroupQueue] = set()
        """Queues that their last holders gave back while others may have to wait for it."""

    def begin(self) -> None:
        """This replica is the master now, or still."""
        if self._waits_until_s is None:
            self._waits_until_s = self._clock.monotonic_s() + TRUSTED_S

    def end(self) -> None:
        self._waits_until_s = None
        self._given_back.clear()

    async def lock(self, connection: Connection, request: Command) -> Command:
        """Code 41: the queues that the client holds now. Raises AerobeeError."""
        asked = read_queues(request.body)
        await self._offsets.begun_for(asked.group)
        self._check_master()
        locked, noted = [], None
        for queue in asked.queues:
            key = GroupQueue(asked.group, queue.topic, queue.queue_id)
            if queue.broker_name != self._broker_name or not self._lock(key, asked.client_id):
                continue
            locked.append(queue_object(queue))
            if self._offsets.last_client(key) != asked.client_id:
                noted = self._note(key, asked.client_id) or noted
        if noted is not None:
            await asyncio.wait((noted,), timeout=_SAFE_S)
            if not noted.done():
                raise DeadlineExceeded("the locks are not as safe as promised yet; ask again")
            noted.result()
        return request.answer(body=json_bodies.write({"lockOKMQSet": locked}))

    def unlock(self, connection: Connection, request: Command) -> Command:
        """Code 42. Raises InvalidArgument."""
        asked = read_queues(request.body)
        for queue in asked.queues:
            key = GroupQueue(asked.group, queue.topic, queue.queue_id)
            self._members.unlock(key, asked.client_id)
            if self._is_waiting and self._offsets.last_client(key) == asked.client_id:
                self._given_back.add(key)
        return request.answer()

    @property
    def _is_waiting(self) -> bool:
        until_s = self._waits_until_s
        if until_s is None or self._clock.monotonic_s() < until_s:
            return True
        self._given_back.clear()
        return False

    def _lock(self, key: GroupQueue, client_id: str) -> bool:
        now_s = self._clock.monotonic_s()
        if self._is_waiting and key not in self._given_back:
            holder = self._members.locked_by(key, now_s) or self._offsets.last_client(key)
            if holder not in ("", client_id):
                return False
        return self._members.lock(key, client_id, now_s)

    def _note(self, key: GroupQueue, client_id: str) -> asyncio.Future[None] | None:
        """A queue on which the group has no offset has nothing that could be handled twice."""
        try:
            return self._offsets.note_client(key, client_id)
        except AerobeeError:
            self._members.unlock(key, client_id)
            raise
