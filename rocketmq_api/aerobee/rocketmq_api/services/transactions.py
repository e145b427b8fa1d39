"""EndTransaction: a transaction ends at the broker that has its half message, whichever node is
asked.

Clients make the ids, which name no broker, so a broker that does not know one asks the others that
have the topic.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aerobee.cluster_view.route import TopicRoute
from aerobee.rocketmq_api.codes import Refused
from aerobee.rocketmq_api.ports import OwnTransactions
from aerobee.rocketmq_api.resources import stored_topic
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.masters import Masters
from aerobee.rocketmq_api.services.methods import END_TRANSACTION
from aerobee.runtime.errors import AerobeeError, MessageNotFound, NotMaster, TopicNotFound
from aerobee.store.format.transaction_records import Outcome
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

_OUTCOMES: Final = {v2.COMMIT: Outcome.COMMITTED, v2.ROLLBACK: Outcome.ROLLED_BACK}
_WORDS: Final = {
    Outcome.COMMITTED: "the transaction was committed before",
    Outcome.ROLLED_BACK: "the transaction was rolled back before",
    Outcome.SET_ASIDE: "the transaction was set aside before: an operator decides",
}
_ENDED: Final = "the transaction had ended before"

_Answer = service_pb2.EndTransactionResponse


class EndTransactions:
    """Of one node."""

    def __init__(self, masters: Masters[OwnTransactions]) -> None:
        self._masters = masters

    async def end(self, request: service_pb2.EndTransactionRequest, caller: Caller) -> _Answer:
        """Raises Refused with INVALID_TRANSACTION_ID: no broker of the topic knows it;
        AerobeeError: it has not ended, or that is unknown."""
        topic = stored_topic(request.topic, caller.namespace)
        transaction_id = request.transaction_id
        if not transaction_id.strip():
            raise Refused(
                v2.INVALID_TRANSACTION_ID,
                "the request names no transaction; its id is in the answer to the message",
            )
        outcome = _OUTCOMES.get(request.resolution)
        if outcome is None:
            # Its producer does not know yet, and will be asked again.
            return _answer("OK")
        own = self._masters.own
        if own is not None:
            try:
                ended = await own.end(topic, transaction_id, outcome, caller.answer_in_ms)
            except MessageNotFound as error:
                if caller.was_forwarded:
                    raise Refused(v2.INVALID_TRANSACTION_ID, str(error)) from None
            else:
                return _answer("OK" if ended is outcome else _WORDS.get(ended, _ENDED))
        elif caller.was_forwarded:
            raise NotMaster("this node has no transactions; ask the route again for the master")
        return await self._elsewhere(request, caller, topic)

    async def _elsewhere(
        self, request: service_pb2.EndTransactionRequest, caller: Caller, topic: str
    ) -> _Answer:
        try:
            route = await self._masters.route(topic)
        except TopicNotFound:
            route = None
        here = self._masters.own_name
        others = [] if route is None else [name for name in route.queues_by_broker if name != here]

        async def ask(route: TopicRoute, name: str) -> _Answer | AerobeeError:
            try:
                return await self._masters.call(
                    END_TRANSACTION, request, caller, route=route, broker_name=name
                )
            except AerobeeError as error:
                return error

        asked = await asyncio.gather(*(ask(route, name) for name in others if route is not None))
        trouble: AerobeeError | None = None
        for found in asked:
            if not isinstance(found, AerobeeError):
                return found
            if not (isinstance(found, Refused) and found.code == v2.INVALID_TRANSACTION_ID):
                trouble = found
        if trouble is not None:
            raise trouble
        raise Refused(
            v2.INVALID_TRANSACTION_ID,
            f"no broker of topic {topic} knows transaction {request.transaction_id[:64]!r}: it was "
            "not begun, or is so old that it is forgotten",
        )


def _answer(words: str) -> _Answer:
    return _Answer(status=v2.Status(code=v2.OK, message=words))
