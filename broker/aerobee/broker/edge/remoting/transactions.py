"""How remoting producers end their transactions, and are asked about those that they left open."""

from __future__ import annotations

import logging
from typing import Final

from aerobee.access.needs import Resources
from aerobee.access.resources import Action
from aerobee.access.running import require
from aerobee.broker.edge.remoting.clients import RemotingClients
from aerobee.broker.reading.message_lookup import MessageLookup
from aerobee.broker.transactions.ends import Ends
from aerobee.broker.transactions.pending import TransactionName
from aerobee.broker.transactions.questions import Question
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.codes import Ask
from aerobee.runtime.errors import AerobeeError, InvalidArgument
from aerobee.runtime.log import log_event
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.record import Record
from aerobee.store.format.record_layout import (
    QUEUE_ID_AT,
    RecordCorrupt,
    RecordIllegal,
)
from aerobee.store.format.record_rewrite import rewrite_record
from aerobee.store.format.transaction_records import HalfIllegal, Outcome, half_of

log = logging.getLogger(__name__)

_OUTCOMES: Final = {8: Outcome.COMMITTED, 12: Outcome.ROLLED_BACK}
_TIMEOUT_MS: Final = 5_000
_ASKED_BYTES_MAX: Final = 4 << 20
"""A question with a larger message would take too long to write."""


class RemotingTransactions:
    """On the loop. Implements `transactions.questions.Producers`."""

    def __init__(
        self,
        broker_name: str,
        ends: Ends,
        lookup: MessageLookup,
        clients: RemotingClients,
        resources: Resources,
    ) -> None:
        self._broker_name = broker_name
        self._ends = ends
        self._lookup = lookup
        self._clients = clients
        self._resources = resources

    async def end(self, connection: Connection, request: Command) -> Command:
        """Code 37. The half message says which transaction it is; the client's words must fit it.
        Raises AerobeeError."""
        fields = request.fields
        outcome = _OUTCOMES.get(read.number(fields, "commitOrRollback", 0))
        if outcome is None:
            return request.answer()  # it does not know yet, and is asked again
        record = Record(await self._lookup.by_offset(read.number(fields, "commitLogOffset")))
        group = read.text(fields, "producerGroup")
        try:
            half = half_of(record)
        except (HalfIllegal, RecordCorrupt) as error:
            raise InvalidArgument(f"that is no half message: {error}") from None
        if (
            record.topic != HALF_TOPIC
            or half.producer_group != group
            or half.offset != read.number(fields, "tranStateTableOffset")
        ):
            raise InvalidArgument("the half message there is not the one that the producer names")
        require([self._resources.topic(half.topic, Action.PUB)])
        name = TransactionName(half.topic, half.transaction_id)
        ended = await self._ends.end(name, outcome, _TIMEOUT_MS)
        if ended is not outcome:
            log_event(
                log,
                "a producer ends a transaction that ended otherwise",
                topic=half.topic,
                transaction=half.transaction_id,
                asked=outcome.value,
                ended=ended.value,
            )
        return request.answer()

    def ask(self, question: Question) -> bool:
        """Code 39; see `Producers`."""
        half = question.half
        connection = self._clients.producer(half.producer_group, half.topic)
        if connection is None or connection.is_paused or half.size > _ASKED_BYTES_MAX:
            return False
        record = question.record
        fields = {
            "commitLogOffset": str(half.position),
            "tranStateTableOffset": str(half.offset),
            "msgId": record.unique_key or "",
            "transactionId": half.transaction_id,
            "offsetMsgId": offset_message_id(record.store_host, half.position),
            "topic": half.topic,
            "bname": self._broker_name,
        }
        try:
            body = bytearray(
                rewrite_record(
                    record,
                    topic=half.topic.encode(),
                    properties=record.properties_bytes,
                    store_host_ipv6=record.store_host.is_ipv6,
                )
            )
            body[QUEUE_ID_AT : QUEUE_ID_AT + 4] = half.queue_id.to_bytes(4, "big", signed=True)
            connection.tell(Command(Ask.CHECK_TRANSACTION_STATE, fields, bytes(body)))
        except (AerobeeError, RecordIllegal, RecordCorrupt, ValueError):
            return False
        return True
