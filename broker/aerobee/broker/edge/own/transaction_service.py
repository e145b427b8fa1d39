"""TransactionService: ends transactions, lists them, and asks about them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc

from aerobee.access.running import sends_now, topics_seen
from aerobee.broker.transactions.asked import AskedProducers
from aerobee.broker.transactions.end_turns import TOGETHER_MAX
from aerobee.broker.transactions.ends import Ends
from aerobee.broker.transactions.listing import Listing, Wanted
from aerobee.broker.transactions.pending import TransactionName
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.loop_turns import LISTINGS, LoopTurns
from aerobee.store.format.transaction_records import HalfMessage, Outcome
from aerobee.v1 import broker_pb2, broker_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]

TRANSACTIONS_DEFAULT: Final = 100
END_TIMEOUT_DEFAULT_MS: Final = 5_000
END_TIMEOUT_MAX_MS: Final = 60_000

_OUTCOMES: Final = {
    broker_pb2.COMMITTED: Outcome.COMMITTED,
    broker_pb2.ROLLED_BACK: Outcome.ROLLED_BACK,
}
_SAID: Final = {
    Outcome.COMMITTED: broker_pb2.COMMITTED,
    Outcome.ROLLED_BACK: broker_pb2.ROLLED_BACK,
    Outcome.SET_ASIDE: broker_pb2.SET_ASIDE,
}


class TransactionService(broker_pb2_grpc.TransactionServiceServicer):
    """Translates for `Ends`, `Listing` and `AskedProducers`."""

    def __init__(
        self,
        ends: Ends,
        listing: Listing,
        asked: AskedProducers,
        turns: LoopTurns,
        *,
        check_now: Callable[[TransactionName], Awaitable[bool]],
    ) -> None:
        self._check_now = check_now
        self._asked = asked
        self._ends = ends
        self._listing = listing
        self._turns = turns

    async def EndTransaction(
        self, request: broker_pb2.EndTransactionRequest, context: Context
    ) -> broker_pb2.EndTransactionResponse:
        name = TransactionName(request.topic, request.transaction_id)
        timeout_ms = min(request.timeout_ms or END_TIMEOUT_DEFAULT_MS, END_TIMEOUT_MAX_MS)
        if request.only_ask:
            standing = await self._ends.standing(name, timeout_ms)
            said = broker_pb2.OPEN if standing is None else _said(standing)
            return broker_pb2.EndTransactionResponse(outcome=said)
        outcome = _OUTCOMES.get(request.outcome)
        if outcome is None:
            raise InvalidArgument("end a transaction with COMMITTED or ROLLED_BACK")
        ended = await self._ends.end(name, outcome, timeout_ms, by_operator=request.by_operator)
        return broker_pb2.EndTransactionResponse(outcome=_said(ended))

    async def CheckTransaction(
        self, request: broker_pb2.CheckTransactionRequest, context: Context
    ) -> broker_pb2.CheckTransactionResponse:
        name = TransactionName(request.topic, request.transaction_id)
        return broker_pb2.CheckTransactionResponse(asked=await self._check_now(name))

    async def EndTransactions(
        self, request: broker_pb2.EndTransactionsRequest, context: Context
    ) -> broker_pb2.EndTransactionsResponse:
        wanted = [(each, Outcome.COMMITTED) for each in request.committed]
        wanted += [(each, Outcome.ROLLED_BACK) for each in request.rolled_back]
        if len(wanted) > TOGETHER_MAX:
            raise InvalidArgument(f"end at most {TOGETHER_MAX} transactions in one request")
        ended = await self._ends.end_together(
            [(TransactionName(request.topic, each), outcome) for each, outcome in wanted],
            min(request.timeout_ms or END_TIMEOUT_DEFAULT_MS, END_TIMEOUT_MAX_MS),
        )
        unknown = broker_pb2.TRANSACTION_OUTCOME_UNSPECIFIED
        return broker_pb2.EndTransactionsResponse(
            outcomes=[unknown if each is None else _said(each) for each in ended]
        )

    async def ListTransactions(
        self, request: broker_pb2.ListTransactionsRequest, context: Context
    ) -> broker_pb2.ListTransactionsResponse:
        await self._turns.turn(LISTINGS)
        listed = self._listing.aside if request.set_aside else self._listing.open
        page = listed(
            Wanted(request.topic, request.transaction_id, request.begin_ms, request.end_ms),
            from_offset=request.after,
            limit=request.transactions_max or TRANSACTIONS_DEFAULT,
        )
        sees = topics_seen()
        return broker_pb2.ListTransactionsResponse(
            transactions=[_transaction(half) for half in page.halves if sees(half.topic)],
            after=page.next_offset or 0,
        )

    async def WatchChecks(
        self, request: broker_pb2.WatchChecksRequest, context: Context
    ) -> AsyncIterator[broker_pb2.TransactionCheck]:
        if not request.topics:
            raise InvalidArgument("name the topics whose transactions you know")
        with self._asked.joined(request.topics, may_send=sends_now()) as producer:
            while True:
                question = await producer.next()
                yield broker_pb2.TransactionCheck(
                    topic=question.half.topic,
                    transaction_id=question.half.transaction_id,
                    record=question.record.raw,
                    checks=min(question.checks, 0xFFFF_FFFF),
                )


def _said(outcome: Outcome) -> broker_pb2.TransactionOutcome:
    return _SAID.get(outcome, broker_pb2.TRANSACTION_OUTCOME_UNSPECIFIED)


def _transaction(half: HalfMessage) -> broker_pb2.OpenTransaction:
    return broker_pb2.OpenTransaction(
        topic=half.topic,
        queue_id=half.queue_id,
        transaction_id=half.transaction_id,
        producer_group=half.producer_group,
        born_timestamp_ms=half.born_ms,
        store_timestamp_ms=half.stored_ms,
        checks=min(half.checks, 0xFFFF_FFFF),
        physical_offset=half.position,
        record_bytes=half.size,
    )
