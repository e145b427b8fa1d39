"""Offsets of remoting clients: their groups' progress, and the bounds of queues.

Owns: which resets by an operator the readers of a queue do not know yet. Until they do, their
commits are from before the reset and change nothing; each pull is told the new offset. A reader
knows it once it has been told and then pulls from there or commits it: one that has pulled that far
already has messages to drop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from aerobee.broker.edge.remoting.clients import RemotingClients
from aerobee.broker.groups.ownership import SELFS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.sending.guard import Guard
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.codes import Code
from aerobee.runtime.errors import AerobeeError, DeadlineExceeded, LeaseHeld
from aerobee.store.engine.message_store import MessageStore

_SAFE_S: Final = 2.5
_YOUNG_BYTES: Final = 1 << 30
"""A new group reads a log that is shorter from its beginning, whatever it asks for, as with
Apache's brokers, who do so while they have the beginning in memory."""
RESETS_MAX: Final = 100_000


class Progress:
    """On the loop."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        queues: QueueReader,
        guard: Guard,
        store: MessageStore,
        clients: RemotingClients,
    ) -> None:
        self._offsets = offsets
        self._queues = queues
        self._guard = guard
        self._store = store
        self._clients = clients
        self._members = clients.members
        self._resets: dict[GroupQueue, tuple[int, bool]] = {}
        """The new offset, and whether a reader was told."""

    # ------------------------------------------------------------------------------ offsets

    async def query(self, connection: Connection, request: Command) -> Command:
        """Code 14. Raises AerobeeError."""
        key = _key(request)
        await self._offsets.begun_for(key.group)
        self._offsets.check_known()
        self._guard.check_queue(key.topic, key.queue_id)
        offset = self._offsets.query(key)
        if offset is None and self._reads_all(key, request):
            offset = 0
        if offset is None:
            return request.answer(
                Code.QUERY_NOT_FOUND, remark=f"group {key.group} has no offset on this queue"
            )
        return request.answer(fields={"offset": str(offset)})

    def _reads_all(self, key: GroupQueue, request: Command) -> bool:
        if not read.flag(request.fields, "setZeroIfNotFound", default=True):
            return False
        first, _ = self._queues.bounds(key.topic, key.queue_id)
        store = self._store
        return first == 0 and store.appended_end - store.min_offset < _YOUNG_BYTES

    async def update(self, connection: Connection, request: Command) -> Command:
        """Code 15. Raises AerobeeError."""
        key, offset = _key(request), read.number(request.fields, "commitOffset")
        await self._offsets.begun_for(key.group)
        was_reset = key in self._resets
        client_id = self._client_id(key.group, connection)
        try:
            safe = self._commit(key, offset, client_id)
        except LeaseHeld as error:
            if client_id:
                raise
            # A tool commits an offset before it resets the group to it, and stops if that fails.
            return request.answer(remark=f"nothing is committed, only a reset counts: {error}")
        if was_reset and key not in self._resets:
            # Apache's clients have given the queue up by then.
            self._clients.divide_again(key.group)
        if safe is not None:
            await asyncio.wait((safe,), timeout=_SAFE_S)
            if not safe.done():
                raise DeadlineExceeded(
                    "the offset is stored, but disk and replicas did not confirm it in time"
                )
            safe.result()
        return request.answer()

    def commit_quietly(self, key: GroupQueue, offset: int, client_id: str) -> None:
        """A commit that came with a pull, which goes on whatever becomes of it: the next commit
        says whether it took effect."""
        with suppress(AerobeeError):
            self._commit(key, offset, client_id)

    def _commit(self, key: GroupQueue, offset: int, client_id: str) -> asyncio.Future[None] | None:
        if self._is_unknown_at(key, offset):
            return None
        return self._offsets.commit(key, offset, SELFS, client_id)

    def _client_id(self, group: str, connection: Connection) -> str:
        member = self._members.of_connection(group, connection)
        return "" if member is None else member.client_id

    # ------------------------------------------------------------------------------ resets

    def offset_set(self, key: GroupQueue) -> None:
        """A group's offset was set by an operator, or removed."""
        offset = self._offsets.query(key)
        if offset is None or not self._members.has(key):
            self._resets.pop(key, None)
        elif len(self._resets) < RESETS_MAX:
            self._resets[key] = offset, False

    def moved_to(self, key: GroupQueue, offset: int) -> int | None:
        """Where a reader that pulls from `offset` must go on, if it does not know of a reset; it is
        told now."""
        if not self._is_unknown_at(key, offset):
            return None
        moved, _ = self._resets[key]
        self._resets[key] = moved, True
        return moved

    def _is_unknown_at(self, key: GroupQueue, offset: int) -> bool:
        """Whether the queue's reader, which is at `offset`, does not know of a reset."""
        moved, is_told = self._resets.get(key, (None, False))
        if moved is None or not self._members.has(key):
            return False
        if is_told and offset == moved:
            del self._resets[key]
            return False
        return True

    # ------------------------------------------------------------------------------ bounds

    def last(self, connection: Connection, request: Command) -> Command:
        """Code 30. Raises AerobeeError."""
        return request.answer(fields={"offset": str(self._bounds(request)[1])})

    def first(self, connection: Connection, request: Command) -> Command:
        """Code 31. Raises AerobeeError."""
        return request.answer(fields={"offset": str(self._bounds(request)[0])})

    async def first_time(self, connection: Connection, request: Command) -> Command:
        """Code 32: when the queue's first message was stored, -1 without one. Raises
        AerobeeError."""
        self._bounds(request)
        fields = request.fields
        topic, queue_id = read.text(fields, "topic"), read.number(fields, "queueId")
        stored_ms = await self._queues.first_store_timestamp_ms(topic, queue_id)
        return request.answer(fields={"timestamp": str(stored_ms or -1)})

    async def at_time(self, connection: Connection, request: Command) -> Command:
        """Code 29. Raises AerobeeError."""
        self._bounds(request)
        fields = request.fields
        offset = await self._queues.search_by_time(
            read.text(fields, "topic"),
            read.number(fields, "queueId"),
            read.number(fields, "timestamp"),
            upper=fields.get("boundaryType", "").upper() == "UPPER",
        )
        return request.answer(fields={"offset": str(offset)})

    def _bounds(self, request: Command) -> tuple[int, int]:
        topic, queue_id = read.text(request.fields, "topic"), read.number(request.fields, "queueId")
        self._guard.check_queue(topic, queue_id)
        return self._queues.bounds(topic, queue_id)


def _key(request: Command) -> GroupQueue:
    fields = request.fields
    return GroupQueue(
        read.text(fields, "consumerGroup"),
        read.text(fields, "topic"),
        read.number(fields, "queueId"),
    )
