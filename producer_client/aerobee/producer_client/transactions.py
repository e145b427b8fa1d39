"""A producer's transactions: begun, committed, rolled back.

The message of a transaction is stored when it begins, and invisible until it is committed. From
then on its broker group has it, so a commit or rollback goes to the master of that group, and to
its successor after a change, until it is answered. Repeating it does no harm: brokers answer with
how the transaction ended the first time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.defaults import check_whole_number, milliseconds
from aerobee.client_core.group_calls import ELSEWHERE, GroupCalls
from aerobee.client_core.message import Message
from aerobee.client_core.telemetry import Telemetry
from aerobee.client_core.transactions import (
    TransactionOutcome,
    check_ended,
    end_request,
    outcome_of,
    question,
)
from aerobee.cluster_view.methods import END_TRANSACTION
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.accumulator import HALF_LEVEL, Batch
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.delivery import Delivery
from aerobee.producer_client.ends import GatheredEnds
from aerobee.producer_client.receipt import Receipt
from aerobee.producer_client.selector import by_sharding_key
from aerobee.producer_client.targets import Targets
from aerobee.runtime import errors
from aerobee.runtime.retry import Backoff
from aerobee.store.format.transaction_records import LEAD
from aerobee.v1 import broker_pb2

BACKOFF: Final = Backoff(base_ms=50, max_ms=1_000)
MAY_END_YET: Final = (
    *ELSEWHERE,
    errors.Busy,
    errors.DeadlineExceeded,
    errors.NoBrokerAvailable,
    errors.NotEnoughReplicas,
    errors.NotWritable,
    errors.RegistryUnavailable,
    errors.StoreFailed,
)
"""After this answer, the end has happened, or may when it is requested again."""

CHECK_AFTER_S_MAX: Final = 10 * 365 * 86_400

_WORDS: Final = {
    TransactionOutcome.COMMITTED: "committed",
    TransactionOutcome.ROLLED_BACK: "rolled back",
}
_NAMES: Final = {
    TransactionOutcome.COMMITTED: "commit",
    TransactionOutcome.ROLLED_BACK: "rollback",
}


class TransactionUnanswered(errors.DeadlineExceeded):
    """No broker said in time that the transaction has ended; raised by clients only.

    It may have ended as asked for. If not, it is open, and its broker asks the topic's producers
    how it ends. Asking again for the same end is safe.
    """

    __module__ = "aerobee.errors"


class Transaction:
    """One transaction, begun: its message is stored and nobody sees it. Made by a `Producer`."""

    def __init__(self, receipt: Receipt, message: Message, producer: TransactionSender) -> None:
        self.receipt = receipt
        """Of the message. It has no place in its queue yet."""
        self.loop = asyncio.get_running_loop()
        """The loop on which it ends."""
        self._message = message
        self._producer = producer
        self._wanted: TransactionOutcome | None = None
        self._outcome: TransactionOutcome | None = None

    @property
    def transaction_id(self) -> str:
        """The message's id; another one if a different message of the topic has that id."""
        return self.receipt.transaction_id

    @property
    def topic(self) -> str:
        return self.receipt.queue.topic

    @property
    def place(self) -> str:
        """Broker group, topic and id, by which any producer finds it."""
        return f"{self.receipt.queue.broker_name} {self.topic} {self.transaction_id}"

    @property
    def outcome(self) -> TransactionOutcome | None:
        """How it ended, as far as this producer knows; None: it is open, or that is unknown."""
        return self._outcome

    @property
    def is_end_wanted(self) -> bool:
        """Whether `commit` or `rollback` was called."""
        return self._wanted is not None

    async def commit(self, *, timeout: float | None = None) -> None:
        """The message is delivered. Returns when that is as safe as an ordinary send; what is
        committed already is left as it is.

        Args:
            timeout: seconds, instead of the configured `send_timeout_ms`, all attempts included.

        Raises:
            TransactionUnanswered: whether it is committed is unknown; see there.
            TransactionEnded: it was rolled back or set aside before, by an answer to a check or by
                an operator.
            MessageNotFound: its broker has no such transaction: it was removed with the topic or by
                an operator, or lost with the broker.
            TopicNotFound, NotWritableTopic: its topic does not take it now; it stays open.
        """
        await self._end(TransactionOutcome.COMMITTED, timeout)

    async def rollback(self, *, timeout: float | None = None) -> None:
        """The message is never delivered. As `commit`."""
        await self._end(TransactionOutcome.ROLLED_BACK, timeout)

    async def _end(self, wanted: TransactionOutcome, timeout: float | None) -> None:
        timeout_ms = None if timeout is None else milliseconds(timeout)
        self._wanted = wanted
        if self._outcome is None:
            telemetry = self._producer.telemetry
            if telemetry is None:
                self._outcome = await self._producer.end(self, wanted, timeout_ms)
            else:
                with telemetry.ending(_NAMES[wanted], self._message, self.receipt):
                    self._outcome = await self._producer.end(self, wanted, timeout_ms)
        check_ended(self.topic, self.transaction_id, wanted, self._outcome)

    def __repr__(self) -> str:
        state = self._outcome.value if self._outcome is not None else "open"
        return f"Transaction({self.transaction_id}, {self.topic!r}, {state})"


class TransactionSender:
    """Begins and ends the transactions of an open producer."""

    def __init__(
        self,
        connection: ClusterConnection,
        config: ProducerConfig,
        targets: Targets,
        *,
        delivery: Callable[[], Delivery],
        entering: Callable[[], AbstractContextManager[None]],
        telemetry: Telemetry | None = None,
    ) -> None:
        """`delivery` raises ShuttingDown when the producer closes, which waits for what runs in
        `entering`."""
        self.telemetry = telemetry
        self._calls = GroupCalls(connection)
        self._clock = connection.clock
        self._gathered = GatheredEnds(self._calls, connection.clock.monotonic_s)
        self._random = connection.random
        self._config = config
        self._targets = targets
        self._delivery = delivery
        self._entering = entering
        self._is_closed = False
        self.on_topic: Callable[[str], None] | None = None
        """Called with the topic of each transaction before it begins. May raise AerobeeError."""

    def stop(self) -> None:
        """The producer is closed."""
        self._is_closed = True

    async def begin(
        self,
        message: Message,
        size: int,
        queue: MessageQueue | None,
        timeout_ms: int,
        check_after_s: int | None,
        lead: Transaction | None = None,
    ) -> Transaction:
        """See `Producer.begin`. The message has `size` bytes, as the buffer counts them. `lead`: if
        nobody ends it, it ends as that one."""
        if message.schedule is not None:
            raise errors.MessageIllegal(
                "a message of a transaction is delivered when it is committed: leave delay, "
                "deliver_at and delay_level out, or send it without a transaction"
            )
        properties = message.encoded_properties
        if check_after_s is not None:
            check_whole_number("check_after_s", check_after_s, minimum=1)
            check_after_s = min(check_after_s, CHECK_AFTER_S_MAX)
            properties = b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01%d\x02" % check_after_s + properties
        if lead is not None:
            properties = b"%s\x01%s\x02%s" % (LEAD.encode(), lead.place.encode(), properties)
        with self._entering():
            stored = await self._submit(message, properties, size, queue, timeout_ms)
        return Transaction(await stored, message, self)

    async def _submit(
        self,
        message: Message,
        properties: bytes,
        size: int,
        queue: MessageQueue | None,
        timeout_ms: int,
    ) -> asyncio.Future[Receipt]:
        end_s = self._clock.monotonic_s() + timeout_ms / 1_000
        delivery = self._delivery()
        try:
            target = await self._targets.find(message.topic, timeout_ms=timeout_ms)
            if queue is not None:
                target.check_queue(queue)
            elif message.sharding_key is not None:
                queue = by_sharding_key(target.keyed_queues, message.sharding_key)
            if self.on_topic is not None:
                self.on_topic(message.topic)
            if not delivery.budget.take_nowait(size):
                await delivery.wait_for_room(size, end_s=end_s)
        except errors.AerobeeError:
            delivery.counts.messages_failed += 1
            raise
        now_s = self._clock.monotonic_s()
        batch = Batch(
            queue or delivery.selector.choose(target.queues, now_s=now_s),
            opened_s=now_s,
            born_timestamp_ms=self._clock.now_ms(),
            timeout_ms=timeout_ms,
            deadline_s=end_s,
            is_pinned=queue is not None,
            level=HALF_LEVEL,
        )
        batch.is_unnamed = True
        stored: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        batch.add(message.body, properties, message.flag, size, stored)
        delivery.submit(batch)
        return stored

    async def end(
        self, transaction: Transaction, wanted: TransactionOutcome, timeout_ms: int | None
    ) -> TransactionOutcome:
        """Returns how it ended, now or before. Raises as `Transaction.commit`, except
        TransactionEnded."""
        if self._is_closed:
            raise errors.ShuttingDown(
                "the producer is closed: end its transactions before, or leave them to a check"
            )
        if asyncio.get_running_loop() is not transaction.loop:
            raise errors.InvalidArgument(
                "the transaction was begun on another event loop: end it there, or use a "
                "BlockingProducer"
            )
        with self._entering():
            return await self.end_at(
                transaction.topic,
                transaction.receipt.queue.broker_name,
                transaction.transaction_id,
                wanted,
                self._config.send_timeout_ms if timeout_ms is None else timeout_ms,
            )

    async def ended_at(self, place: str) -> TransactionOutcome | None:
        """How the transaction ended that has this `Transaction.place`; None: it is open. Raises
        AerobeeError: that is unknown."""
        broker_name, topic, transaction_id = place.split(" ", 2)
        timeout_ms = self._config.send_timeout_ms
        answer = await self._calls.at_master(
            topic,
            broker_name,
            END_TRANSACTION,
            question(topic, transaction_id, timeout_ms),
            timeout_ms=timeout_ms,
        )
        return None if answer.outcome == broker_pb2.OPEN else outcome_of(answer)

    async def end_at(
        self,
        topic: str,
        broker_name: str,
        transaction_id: str,
        wanted: TransactionOutcome,
        timeout_ms: int,
    ) -> TransactionOutcome:
        """As `end`, for a transaction that any producer began."""
        end_s = self._clock.monotonic_s() + timeout_ms / 1_000
        ended = await self._gathered.end(topic, broker_name, transaction_id, wanted, end_s)
        if ended is not None:
            return ended
        failures = 0
        while True:
            left_ms = max(1, int((end_s - self._clock.monotonic_s()) * 1_000))
            request = end_request(topic, transaction_id, wanted, left_ms)
            try:
                answer = await self._calls.at_master(
                    topic, broker_name, END_TRANSACTION, request, timeout_ms=left_ms
                )
            except MAY_END_YET as error:
                failures += 1
                pause_s = BACKOFF.delay_s(failures, self._random)
                if isinstance(error, errors.Busy):
                    pause_s = max(pause_s, error.retry_after_ms / 1_000)
                if self._is_closed or self._clock.monotonic_s() + pause_s >= end_s:
                    raise TransactionUnanswered(
                        f"nobody answered within {timeout_ms / 1_000:g} s that transaction "
                        f"{transaction_id} of topic {topic!r} is {_WORDS[wanted]}: it may be so; "
                        "if not, it is open, and its broker asks the topic's producers how it "
                        f"ends. Ask again to be sure ({error})"
                    ) from None
                await asyncio.sleep(pause_s)
            else:
                return outcome_of(answer)
