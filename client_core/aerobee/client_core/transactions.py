"""Open transactions over all brokers: found, and ended on behalf of their producers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.master_search import Masters, nobody_answers, search_masters
from aerobee.client_core.message import ReceivedMessage
from aerobee.client_core.offsets import all_of
from aerobee.cluster_view.methods import (
    CHECK_TRANSACTION,
    END_TRANSACTION,
    GET_MESSAGE,
    LIST_TRANSACTIONS,
)
from aerobee.cluster_view.route import Endpoint, MessageQueue
from aerobee.runtime import errors
from aerobee.store.format.record import Record
from aerobee.v1 import broker_pb2

OPEN_TRANSACTIONS_MAX: Final = 100


class TransactionOutcome(StrEnum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    SET_ASIDE = "set_aside"
    """Its producers did not say how it ends; an operator decides."""
    FORGOTTEN = "forgotten"
    """It ended so long ago that no broker remembers how."""


_SAID: Final = {
    TransactionOutcome.COMMITTED: broker_pb2.COMMITTED,
    TransactionOutcome.ROLLED_BACK: broker_pb2.ROLLED_BACK,
}
_HEARD: Final[dict[int, TransactionOutcome]] = {
    broker_pb2.COMMITTED: TransactionOutcome.COMMITTED,
    broker_pb2.ROLLED_BACK: TransactionOutcome.ROLLED_BACK,
    broker_pb2.SET_ASIDE: TransactionOutcome.SET_ASIDE,
}
_HAPPENED: Final = {
    TransactionOutcome.COMMITTED: "was committed before: its message is delivered",
    TransactionOutcome.ROLLED_BACK: "was rolled back before: its message is never delivered",
    TransactionOutcome.SET_ASIDE: "was set aside, since no producer said how it ends: see "
    "`aerobee transaction list --set-aside`",
    TransactionOutcome.FORGOTTEN: "ended so long ago that no broker remembers how",
}


class TransactionEnded(errors.AerobeeError):
    """The transaction had already ended, differently from what was requested; raised by clients
    only."""

    __module__ = "aerobee.errors"

    def __init__(
        self, message: str, *, outcome: TransactionOutcome = TransactionOutcome.FORGOTTEN
    ) -> None:
        super().__init__(message)
        self.outcome = outcome


def check_ended(
    topic: str, transaction_id: str, wanted: TransactionOutcome, ended: TransactionOutcome
) -> None:
    """Raises TransactionEnded unless it ended as requested."""
    if ended is not wanted:
        raise TransactionEnded(
            f"transaction {transaction_id} of topic {topic!r} {_HAPPENED[ended]}", outcome=ended
        )


def end_request(
    topic: str, transaction_id: str, wanted: TransactionOutcome, timeout_ms: int
) -> broker_pb2.EndTransactionRequest:
    """The request to a broker that must answer within `timeout_ms`."""
    return broker_pb2.EndTransactionRequest(
        topic=topic,
        transaction_id=transaction_id,
        outcome=_SAID[wanted],
        # Leaves time for its answer to arrive.
        timeout_ms=max(1, timeout_ms * 9 // 10),
    )


def question(topic: str, transaction_id: str, timeout_ms: int) -> broker_pb2.EndTransactionRequest:
    """As `end_request`, and ends nothing."""
    return broker_pb2.EndTransactionRequest(
        topic=topic,
        transaction_id=transaction_id,
        only_ask=True,
        timeout_ms=max(1, timeout_ms * 9 // 10),
    )


def together_request(
    topic: str, wanted: Sequence[tuple[str, TransactionOutcome]], timeout_ms: int
) -> broker_pb2.EndTransactionsRequest:
    """As `end_request`, for transactions of one topic by their ids, commits first."""
    committed = TransactionOutcome.COMMITTED
    return broker_pb2.EndTransactionsRequest(
        topic=topic,
        committed=[each for each, outcome in wanted if outcome is committed],
        rolled_back=[each for each, outcome in wanted if outcome is not committed],
        timeout_ms=max(1, timeout_ms * 9 // 10),
    )


def told_outcome(outcome: int) -> TransactionOutcome | None:
    """How it ended, by the answer to `together_request`; None: request it by itself."""
    return _HEARD.get(outcome)


def outcome_of(answer: broker_pb2.EndTransactionResponse) -> TransactionOutcome:
    """How it ended."""
    return _HEARD.get(answer.outcome, TransactionOutcome.FORGOTTEN)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has not been ended yet, or was set aside. Times are Unix ms."""

    queue: MessageQueue
    """Where its message will be delivered."""
    transaction_id: str
    """The message's id."""
    producer_group: str
    born_timestamp_ms: int
    """When it began, by its producer's clock."""
    store_timestamp_ms: int
    """When its half message was stored, most recently if it was checked."""
    checks: int
    """How often its producers were asked."""
    physical_offset: int
    """Of its half message, in the broker's log."""
    record_bytes: int


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """What a search found over all brokers."""

    transactions: tuple[OpenTransaction, ...]
    """Oldest first."""
    more: bool
    """Further transactions are open."""
    unanswered: tuple[str, ...]
    """Brokers that could not be asked; their transactions are missing here."""


class Transactions:
    """Finds open transactions, and ends them if their producers do not.

    Example::

        async with ClusterConnection("127.0.0.1:8081") as connection:
            transactions = Transactions(connection)
            found = await transactions.list("orders")
            for each in found.transactions:
                await transactions.rollback("orders", each.transaction_id)
    """

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._masters = Masters(connection, timeout_ms=timeout_ms)
        self._channels = connection.channels
        self._timeout_ms = timeout_ms

    async def list(
        self,
        topic: str = "",
        *,
        transaction_id: str = "",
        begin_ms: int = 0,
        end_ms: int = 0,
        set_aside: bool = False,
        max_transactions: int = OPEN_TRANSACTIONS_MAX,
    ) -> OpenTransactions:
        """Open transactions, oldest first.

        Args:
            topic: only those of this topic; empty: of any.
            transaction_id: only those with this id.
            begin_ms, end_ms: only those begun at the first of these or later, before the second; 0
                leaves a side open.
            set_aside: those that were set aside, instead of open ones.
            max_transactions: at least 1.

        Raises:
            InvalidArgument.
            NoBrokerAvailable: no broker answers.
            Unreachable, DeadlineExceeded: no nameserver answers.
        """
        request = broker_pb2.ListTransactionsRequest(
            topic=topic,
            transaction_id=transaction_id,
            begin_ms=begin_ms,
            end_ms=end_ms,
            set_aside=set_aside,
        )

        async def page(
            endpoint: Endpoint, count: int, after: int
        ) -> tuple[Sequence[OpenTransaction], int]:
            asked = broker_pb2.ListTransactionsRequest(after=after, transactions_max=count)
            asked.MergeFrom(request)
            answer = await self._channels.call(
                endpoint.address, LIST_TRANSACTIONS, asked, timeout_ms=self._timeout_ms
            )
            found = [_open(each, endpoint.broker_name) for each in answer.transactions]
            return found, answer.after

        found = await search_masters(
            await self._masters.roll_call(),
            page,
            begin=0,
            order=lambda each: each.store_timestamp_ms,
            items_max=max_transactions,
        )
        return OpenTransactions(*found)

    async def message(self, transaction: OpenTransaction) -> ReceivedMessage:
        """The message of an open transaction, as it is stored.

        Raises:
            MessageNotFound: it has ended since, and its half message is removed.
            NoBrokerAvailable: its broker group has no master now.
            Unreachable, DeadlineExceeded.
        """
        endpoint = await self._masters.of(transaction.queue.broker_name)
        request = broker_pb2.GetMessageRequest(physical_offset=transaction.physical_offset)
        answer = await self._channels.call(
            endpoint.address, GET_MESSAGE, request, timeout_ms=self._timeout_ms
        )
        return ReceivedMessage(Record(answer.record), transaction.queue)

    async def commit(self, topic: str, transaction_id: str) -> None:
        """Its message is delivered, even if it was set aside.

        Raises:
            MessageNotFound: no broker has such a transaction.
            TransactionEnded: it was rolled back before.
            TopicNotFound, NotWritableTopic, MessageIllegal: its message cannot be delivered.
            NoBrokerAvailable, DeadlineExceeded, Unreachable, Busy: it has ended, or not: ask again.
        """
        await self._end(topic, transaction_id, TransactionOutcome.COMMITTED)

    async def rollback(self, topic: str, transaction_id: str) -> None:
        """Its message is never delivered. Raises as `commit`."""
        await self._end(topic, transaction_id, TransactionOutcome.ROLLED_BACK)

    async def check(self, topic: str, transaction_id: str) -> bool:
        """Have a producer asked now how an open transaction ends, and not at the next scan; the
        answer comes to the broker later. False: no producer is connected that can be asked.

        Raises:
            MessageNotFound: no broker that answers has such an open transaction.
            InvalidArgument: it has just begun, and its producer may still work on it.
            NoBrokerAvailable, DeadlineExceeded, Unreachable, Busy.
        """
        call = await self._masters.roll_call()
        if not call.masters:
            raise nobody_answers(call.absent)
        request = broker_pb2.CheckTransactionRequest(topic=topic, transaction_id=transaction_id)

        async def ask(endpoint: Endpoint) -> bool | errors.AerobeeError:
            try:
                answer = await self._channels.call(
                    endpoint.address, CHECK_TRANSACTION, request, timeout_ms=self._timeout_ms
                )
            except errors.AerobeeError as error:
                return error
            return answer.asked

        answers = await all_of([ask(each) for each in call.masters])
        known = [each for each in answers if not isinstance(each, errors.AerobeeError)]
        if known:
            return any(known)
        raise _not_known(
            topic,
            transaction_id,
            [each for each in answers if isinstance(each, errors.AerobeeError)],
            call.absent,
        )

    # ---------------------------------------------------------------------- asking

    async def _end(self, topic: str, transaction_id: str, wanted: TransactionOutcome) -> None:
        """Ids name no broker, and the topic may have been deleted, so all masters are asked."""
        call = await self._masters.roll_call()
        if not call.masters:
            raise nobody_answers(call.absent)
        request = end_request(topic, transaction_id, wanted, self._timeout_ms)
        request.by_operator = True

        async def ask(endpoint: Endpoint) -> TransactionOutcome | errors.AerobeeError:
            try:
                answer = await self._channels.call(
                    endpoint.address, END_TRANSACTION, request, timeout_ms=self._timeout_ms
                )
            except errors.AerobeeError as error:
                return error
            return outcome_of(answer)

        answers = await all_of([ask(each) for each in call.masters])
        outcomes = [each for each in answers if not isinstance(each, errors.AerobeeError)]
        for outcome in outcomes:
            check_ended(topic, transaction_id, wanted, outcome)
        if outcomes:
            return
        failures = [each for each in answers if isinstance(each, errors.AerobeeError)]
        raise _not_known(topic, transaction_id, failures, call.absent)


def _not_known(
    topic: str,
    transaction_id: str,
    failures: Sequence[errors.AerobeeError],
    absent: Sequence[str],
) -> errors.AerobeeError:
    """Why no master has the transaction; the first failure that says something else, if any."""
    for failure in failures:
        if not isinstance(failure, errors.MessageNotFound):
            return failure
    if absent:
        return errors.NoBrokerAvailable(
            f"no broker that answers has transaction {transaction_id[:64]!r} of topic "
            f"{topic!r}, and {', '.join(absent)} has no master now: ask again later"
        )
    return errors.MessageNotFound(
        f"no broker has transaction {transaction_id[:64]!r} of topic {topic!r}: it was not "
        "begun, or is so old that it is forgotten; see `aerobee transaction list`"
    )


def _open(found: broker_pb2.OpenTransaction, broker_name: str) -> OpenTransaction:
    return OpenTransaction(
        queue=MessageQueue(found.topic, broker_name, found.queue_id),
        transaction_id=found.transaction_id,
        producer_group=found.producer_group,
        born_timestamp_ms=found.born_timestamp_ms,
        store_timestamp_ms=found.store_timestamp_ms,
        checks=found.checks,
        physical_offset=found.physical_offset,
        record_bytes=found.record_bytes,
    )
