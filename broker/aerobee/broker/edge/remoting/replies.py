"""Replies to requests: a consumer sends one, and the producer that asked gets it at once.

A reply is not stored. It goes to the connection of the client that its property names, if that is
here; otherwise its sender is refused, and tries another broker.
"""

from __future__ import annotations

from typing import Final

from aerobee.access.meter import PATIENCE_S, sending_meter
from aerobee.access.quota import Traffic
from aerobee.broker.edge.remoting.clients import RemotingClients
from aerobee.broker.edge.remoting.conversations import Conversations
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting.codes import Ask, Code
from aerobee.rocketmq_remoting.sends import Send, send_fields
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MessageIllegal
from aerobee.store.format.properties import (
    PropertyName,
    decode_properties,
    replace_properties,
)
from aerobee.store.format.record_layout import HostAddress

_TIMEOUT_S: Final = 2.5
"""Clients give a send up after 3 s."""
REPLY_BYTES_MAX: Final = 4 << 20


class Replies:
    """On the loop."""

    def __init__(
        self,
        clients: RemotingClients,
        conversations: Conversations,
        clock: Clock,
        store_host: HostAddress,
    ) -> None:
        self._clients = clients
        self._conversations = conversations
        self._clock = clock
        self._store_host = store_host

    async def reply(self, connection: Connection, request: Command) -> Command:
        """Codes 324 and 325. Raises AerobeeError."""
        fields = send_fields(request)
        send = Send.of(fields)
        if len(request.body) > REPLY_BYTES_MAX:
            raise MessageIllegal(
                f"the reply has {len(request.body)} bytes; at most {REPLY_BYTES_MAX} are possible"
            )
        meter = sending_meter()
        if meter is not None:
            size = len(request.body) + sum(map(len, fields.values()))
            await meter.pause(meter.spend(Traffic.SEND, size, patience_s=PATIENCE_S))
        asker_id = decode_properties(send.properties).get(PropertyName.REPLY_TO_CLIENT, "")
        asker = self._clients.producer_with_id(asker_id) if asker_id else None
        if asker is None:
            return request.answer(
                Code.SYSTEM_ERROR,
                remark=f"the client that waits for this reply, {asker_id!r:.80}, is not connected "
                "to this broker; another one may reach it",
            )
        now_ms = str(self._clock.now_ms())
        properties = replace_properties(
            send.properties, {PropertyName.PUSH_REPLY_TIME.encode(): now_ms.encode()}
        )
        told = {
            "producerGroup": send.producer_group,
            "topic": send.topic,
            "defaultTopic": fields.get("defaultTopic", ""),
            "defaultTopicQueueNums": fields.get("defaultTopicQueueNums", "0"),
            "queueId": str(send.queue_id),
            "sysFlag": str(send.sys_flag),
            "bornTimestamp": str(send.born_ms),
            "flag": str(send.flag),
            "properties": properties.decode("utf-8", "replace"),
            "reconsumeTimes": fields.get("reconsumeTimes", "0"),
            "unitMode": fields.get("unitMode", "false"),
            "bornHost": connection.peer,
            "storeHost": str(self._store_host),
            "storeTimestamp": now_ms,
        }
        push = Command(Ask.PUSH_REPLY_MESSAGE_TO_CLIENT, told, request.body)
        answer = await self._conversations.ask(asker, push, _TIMEOUT_S)
        if answer.code != Code.SUCCESS:
            return request.answer(
                Code.SYSTEM_ERROR, remark=f"client {asker_id!r:.80} did not take the reply"
            )
        # Nothing is stored, so there is no id and no offset; clients read both.
        return request.answer(
            fields={"msgId": "0", "queueId": str(max(0, send.queue_id)), "queueOffset": "0"}
        )
