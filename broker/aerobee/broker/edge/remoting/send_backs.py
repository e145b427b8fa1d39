"""Messages that remoting clients send back, because their listeners failed with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aerobee.access.needs import Resources
from aerobee.access.resources import Action
from aerobee.access.running import require
from aerobee.broker.edge.remoting.clients import RemotingClients
from aerobee.broker.groups.ownership import SELFS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.reading.message_lookup import MessageLookup
from aerobee.broker.retries.send_backs import Failure, SendBacks, Sender
from aerobee.domain import names
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import fields as read
from aerobee.runtime.errors import DeadlineExceeded
from aerobee.store.format.record import Record

_SAFE_S: Final = 2.5


class RemotingSendBacks:
    """On the loop."""

    def __init__(
        self,
        send_backs: SendBacks,
        lookup: MessageLookup,
        clients: RemotingClients,
        resources: Resources,
        *,
        check_master: Callable[[], None],
    ) -> None:
        self._send_backs = send_backs
        self._lookup = lookup
        self._clients = clients
        self._resources = resources
        self._check_master = check_master

    async def send_back(self, connection: Connection, request: Command) -> Command:
        """Code 36. Repeated, it changes nothing. Raises AerobeeError."""
        self._check_master()
        fields = request.fields
        group = read.text(fields, "group")
        names.check_group_name(group)
        position = read.number(fields, "offset")
        record = Record(await self._lookup.by_offset(position, even_unkept=True))
        require([self._resources.topic(record.topic, Action.SUB)])
        member = self._clients.members.of_connection(group, connection)
        retries_max = read.number(fields, "maxReconsumeTimes", -1)
        sender = Sender(
            GroupQueue(group, record.topic, record.queue_id),
            SELFS,
            "" if member is None else member.client_id,
            retries_max if retries_max >= 0 else None,
        )
        level = read.number(fields, "delayLevel", 0)
        (answer,) = await self._send_backs.send_back(sender, [Failure(record.queue_offset, level)])
        if answer.error is not None:
            raise answer.error
        if answer.done is not None:
            await asyncio.wait((answer.done,), timeout=_SAFE_S)
            if not answer.done.done():
                raise DeadlineExceeded("the message is sent back, but not safe in time")
            answer.done.result()
        return request.answer()
