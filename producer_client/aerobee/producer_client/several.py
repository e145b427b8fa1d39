"""Several messages in one transaction: all are delivered or none, over topics and brokers.

    begin the first, the lead -> begin the others, each names its lead -> end the lead -> end them

Owns: the order of these steps. The end of the lead decides: it ends once, at one broker, by its
producer, by the answer to a check or by an operator. Every other message ends as its lead did. If
its producer is gone, another one answers the check by looking at the lead, and decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from aerobee.client_core.message import Message
from aerobee.client_core.transactions import TransactionEnded, TransactionOutcome
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.receipt import Receipt
from aerobee.producer_client.transactions import Transaction
from aerobee.runtime import errors
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


class BeginOne(Protocol):
    """`Producer.begin`, of a message that ends as its `lead`."""

    def __call__(
        self,
        message: Message,
        *,
        queue: MessageQueue | None,
        timeout: float | None,
        check_after_s: int | None,
        lead: Transaction | None,
    ) -> Awaitable[Transaction]: ...


class TransactionOfSeveral:
    """The messages of a block `async with producer.transaction() as tx`. Made by a `Producer`."""

    def __init__(
        self,
        begin: BeginOne,
        *,
        timeout: float | None,
        check_after_s: int | None,
        on_begun: Callable[[str], None],
    ) -> None:
        """`on_begun` gets the id of each message's transaction."""
        self._begin = begin
        self._timeout = timeout
        self._check_after_s = check_after_s
        self._on_begun = on_begun
        self._first = asyncio.Lock()
        self._lead: Transaction | None = None
        self._others: list[Transaction] = []
        self._failed: errors.AerobeeError | None = None
        self._is_over = False

    @property
    def transactions(self) -> tuple[Transaction, ...]:
        """One for each message; the first one decides."""
        return () if self._lead is None else (self._lead, *self._others)

    async def send(
        self, message: Message, *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> Receipt:
        """Store a message that nobody sees before the block is left without an exception.

        Sends of several tasks may run at the same time; they wait for the first one.

        Args:
            message: it cannot ask for a later delivery.
            queue: where to; by default by sharding key, or else in turn.
            timeout: seconds, instead of the configured ones.

        Raises:
            AerobeeError: as `Producer.begin`; none of the messages will be delivered.
            InvalidArgument: the block has been left, or a message could not be stored before.
        """
        if self._is_over:
            raise errors.InvalidArgument(
                "the block of this transaction has been left: begin another"
            )
        if self._lead is None:
            async with self._first:
                if self._lead is None:
                    self._check()
                    self._lead = await self._store(message, queue, timeout, None)
                    return self._lead.receipt
        self._check()
        begun = await self._store(message, queue, timeout, self._lead)
        self._others.append(begun)
        return begun.receipt

    async def _store(
        self,
        message: Message,
        queue: MessageQueue | None,
        timeout: float | None,
        lead: Transaction | None,
    ) -> Transaction:
        try:
            begun = await self._begin(
                message,
                queue=queue,
                timeout=self._timeout if timeout is None else timeout,
                check_after_s=self._check_after_s,
                lead=lead,
            )
        except errors.AerobeeError as error:
            self._failed = error
            raise
        self._on_begun(begun.transaction_id)
        return begun

    def _check(self) -> None:
        if self._failed is not None:
            raise errors.InvalidArgument(
                "a message of this transaction could not be stored, so none is delivered: begin "
                f"another one ({self._failed})"
            )

    async def commit(self) -> None:
        """At the end of the block. Raises as `Transaction.commit`."""
        self._is_over = True
        lead = self._lead
        if self._failed is not None:
            await self.roll_back()
            self._check()
        if lead is None:
            return
        try:
            await lead.commit(timeout=self._timeout)
        except TransactionEnded as error:
            if error.outcome is TransactionOutcome.ROLLED_BACK:
                await self._follow([each.rollback for each in self._others])
            raise
        # That was the decision. After a crash from here on, the other messages follow it.
        await self._follow([each.commit for each in self._others])

    async def roll_back(self) -> None:
        """None of the messages is delivered. What cannot be rolled back now is decided by a check
        of the first one."""
        self._is_over = True
        if self._lead is None:
            return
        try:
            await self._lead.rollback(timeout=self._timeout)
        except errors.AerobeeError as error:
            _tell("a transaction is not rolled back: a check decides", self._lead, error)
        else:
            await self._follow([each.rollback for each in self._others])

    async def _follow(self, ends: Iterable[Callable[..., Awaitable[None]]]) -> None:
        results = await asyncio.gather(
            *(end(timeout=self._timeout) for end in ends), return_exceptions=True
        )
        for transaction, error in zip(self._others, results, strict=True):
            if isinstance(error, errors.AerobeeError):
                _tell("a message ends as its transaction at the next check", transaction, error)
            elif error is not None:
                raise error


def _tell(event: str, transaction: Transaction, error: errors.AerobeeError) -> None:
    log_event(
        log,
        event,
        level=logging.WARNING,
        transaction=transaction.transaction_id,
        topic=transaction.topic,
        reason=error,
    )
