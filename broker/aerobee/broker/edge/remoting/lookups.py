"""Single messages that remoting clients and tools ask for, by position or by key."""

from __future__ import annotations

from typing import Final

from aerobee.access.needs import Resources
from aerobee.access.resources import SEEING
from aerobee.access.running import require
from aerobee.broker.edge.own.needs import topics_of
from aerobee.broker.reading.message_lookup import KeyQuery, MessageLookup
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.codes import Code
from aerobee.runtime.errors import MessageNotFound
from aerobee.store.format.record import Record

_MESSAGES_MAX: Final = 64


class RemotingLookups:
    """On the loop."""

    def __init__(self, lookup: MessageLookup, resources: Resources) -> None:
        self._lookup = lookup
        self._resources = resources

    async def by_offset(self, connection: Connection, request: Command) -> Command:
        """Code 33. Raises AerobeeError."""
        try:
            record = await self._lookup.by_offset(read.number(request.fields, "offset"))
        except MessageNotFound as error:
            return request.answer(Code.SYSTEM_ERROR, remark=str(error))
        require(self._resources.topics(topics_of(Record(record)), SEEING))
        return request.answer(body=record)

    async def by_key(self, connection: Connection, request: Command) -> Command:
        """Code 12. Raises AerobeeError."""
        fields = request.fields
        found = await self._lookup.by_key(
            KeyQuery(
                read.text(fields, "topic"),
                read.text(fields, "key"),
                is_unique_key=read.flag(fields, "_UNIQUE_KEY_QUERY"),
                begin_ms=max(0, read.number(fields, "beginTimestamp", 0)),
                end_ms=max(0, read.number(fields, "endTimestamp", 0)),
                max_messages=min(max(1, read.number(fields, "maxNum", 1)), _MESSAGES_MAX),
            )
        )
        indexed = {
            "indexLastUpdateTimestamp": str(found.indexed_timestamp_ms),
            "indexLastUpdatePhyoffset": str(found.indexed_end),
        }
        if not found.records:
            return request.answer(
                Code.QUERY_NOT_FOUND, indexed, remark="no message of the topic has this key"
            )
        return request.answer(fields=indexed, body=b"".join(found.records))
