"""Brokers ask a producer how old transactions end; it asks its application.

One stream goes to the master of each broker group that has a topic of the producer. A broker asks
one of a topic's producers, not always the one that began the transaction: the application must
decide from stored data, not from memory. After UNKNOWN, or an error, the broker asks again.

Owns: the streams, and how many questions the application gets at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.message import ReceivedMessage
from aerobee.client_core.transactions import TransactionOutcome
from aerobee.cluster_view.methods import WATCH_CHECKS
from aerobee.cluster_view.route import MessageQueue
from aerobee.domain.names import check_topic_name
from aerobee.runtime import errors
from aerobee.runtime.log import log_event
from aerobee.runtime.retry import Backoff
from aerobee.store.format.record import Record, RecordCorrupt
from aerobee.store.format.record_layout import RecordIllegal
from aerobee.store.format.transaction_records import LEAD, HalfIllegal, committed_record
from aerobee.v1 import broker_pb2

log = logging.getLogger(__name__)

CHECKS_AT_A_TIME: Final = 16
TOPICS_MAX: Final = 256
BACKOFF: Final = Backoff(base_ms=100, max_ms=5_000)
ROUTE_TIMEOUT_MS: Final = 3_000
LOOK_AGAIN_S: Final = 30.0
"""A broker group that is new to a topic gets a stream within this time."""
LOOK_SOON_S: Final = 2.0
"""If a topic could not be found."""


class CheckAnswer(StrEnum):
    """How a transaction ends, according to its application."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """Not known yet: ask again later."""


_OUTCOMES: Final = {
    CheckAnswer.COMMIT: TransactionOutcome.COMMITTED,
    CheckAnswer.ROLLBACK: TransactionOutcome.ROLLED_BACK,
}


@dataclass(frozen=True, slots=True)
class TransactionCheck:
    """A broker's question about an open transaction."""

    topic: str
    transaction_id: str
    """The message's id."""
    message: ReceivedMessage
    """As it will be delivered if committed, but without a place in its queue."""
    checks: int
    """How often this has been asked, including this time."""


CheckTransaction = Callable[[TransactionCheck], Awaitable[CheckAnswer]]

EndTransaction = Callable[[str, str, str, TransactionOutcome], Awaitable[object]]
"""Arguments: topic, broker group, id. Raises AerobeeError."""


EndedLead = Callable[[str], Awaitable[TransactionOutcome | None]]
"""Of a lead at this place; None: it is open. Raises AerobeeError."""


class CheckListener:
    """The streams of one producer; on the loop, while `run` runs."""

    def __init__(
        self,
        connection: ClusterConnection,
        check: CheckTransaction,
        topics: Iterable[str],
        *,
        end: EndTransaction,
        ended: EndedLead,
        is_under_way: Callable[[str], bool],
    ) -> None:
        """`ended` says how a message's lead ended. `is_under_way`: whether this producer
        is about to end a transaction itself.

        Raises IllegalName, InvalidArgument.
        """
        self._connection = connection
        self._routes = connection.routes
        self._check = check
        self._end = end
        self._ended = ended
        self._is_under_way = is_under_way
        self._topics: set[str] = set()
        self._due = asyncio.Event()
        self._places = asyncio.Semaphore(CHECKS_AT_A_TIME)
        for topic in topics:
            check_topic_name(topic)
            self.add(topic)

    def add(self, topic: str) -> None:
        """Transactions of this topic may be asked about. Raises InvalidArgument: too many."""
        if topic in self._topics:
            return
        if len(self._topics) == TOPICS_MAX:
            raise errors.InvalidArgument(
                f"a producer with check_transaction has transactions on at most {TOPICS_MAX} "
                "topics: open another one"
            )
        self._topics.add(topic)
        self._due.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        running: dict[str, tuple[frozenset[str], asyncio.Task[None]]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._due.clear()
                wanted, is_whole = await self._wanted()
                for broker_name, (topics, task) in [*running.items()]:
                    # A group that cannot be found at the moment keeps its stream.
                    if wanted.get(broker_name, topics) != topics:
                        task.cancel()
                        del running[broker_name]
                for broker_name, topics in wanted.items():
                    if broker_name not in running:
                        task = tasks.create_task(
                            self._listen(broker_name, topics, tasks), name=f"checks:{broker_name}"
                        )
                        running[broker_name] = topics, task
                try:
                    async with asyncio.timeout(LOOK_AGAIN_S if is_whole else LOOK_SOON_S):
                        await self._due.wait()
                except TimeoutError:
                    pass

    async def _wanted(self) -> tuple[dict[str, frozenset[str]], bool]:
        """The topics by broker group, and whether all of them were found."""
        found: dict[str, set[str]] = {}
        is_whole = True
        for topic in sorted(self._topics):
            try:
                route = await self._routes.route(topic, timeout_ms=ROUTE_TIMEOUT_MS)
            except errors.AerobeeError as error:
                is_whole = False
                log_event(
                    log,
                    "a topic's transactions are not asked about yet",
                    level=logging.DEBUG,
                    topic=topic,
                    reason=error,
                )
                continue
            for broker_name in route.queues_by_broker:
                found.setdefault(broker_name, set()).add(topic)
        return {name: frozenset(topics) for name, topics in found.items()}, is_whole

    async def _listen(
        self, broker_name: str, topics: frozenset[str], tasks: asyncio.TaskGroup
    ) -> None:
        """At the group's master, and at its successors."""
        topic, failures = min(topics), 0
        request = broker_pb2.WatchChecksRequest(topics=sorted(topics))
        while True:
            try:
                endpoint = await self._routes.master(
                    topic, broker_name, timeout_ms=ROUTE_TIMEOUT_MS
                )
                async with self._routes.while_master(topic, endpoint):
                    stream = self._connection.channels.open_server_stream(
                        endpoint.address, WATCH_CHECKS, request
                    )
                    try:
                        while (asked := await stream.read()) is not None:
                            failures = 0
                            await self._places.acquire()
                            tasks.create_task(self._answer(broker_name, asked), name="check")
                    finally:
                        stream.cancel()
            except errors.AerobeeError as error:
                log_event(
                    log,
                    "a broker does not ask about transactions now",
                    level=logging.DEBUG,
                    broker=broker_name,
                    reason=error,
                )
            failures += 1
            self._routes.invalidate(topic)
            await asyncio.sleep(BACKOFF.delay_s(failures, self._connection.random))

    async def _answer(self, broker_name: str, asked: broker_pb2.TransactionCheck) -> None:
        try:
            check = _check_of(asked, broker_name)
            if lead := check.message.properties.get(LEAD):
                # One check answers for all messages: that of the first, which their brokers have
                # asked about before or will soon.
                outcome = await self._ended(lead)
                if outcome not in _OUTCOMES.values():
                    return
            else:
                outcome = _OUTCOMES.get(await self._ask(check))
            if outcome is not None:
                await self._end(asked.topic, broker_name, asked.transaction_id, outcome)
        except (errors.AerobeeError, HalfIllegal, RecordIllegal, RecordCorrupt) as error:
            _tell("an answer about a transaction is lost: it is asked again", asked, error)
        finally:
            self._places.release()

    async def _ask(self, check: TransactionCheck) -> CheckAnswer:
        if self._is_under_way(check.transaction_id):
            return CheckAnswer.UNKNOWN
        try:
            return CheckAnswer(await self._check(check))
        except Exception as error:
            log_event(
                log,
                "check_transaction failed: the transaction is asked about again",
                level=logging.ERROR,
                topic=check.topic,
                transaction=check.transaction_id,
                reason=f"{type(error).__name__}: {error}",
            )
            return CheckAnswer.UNKNOWN


def _check_of(asked: broker_pb2.TransactionCheck, broker_name: str) -> TransactionCheck:
    """Raises HalfIllegal, RecordIllegal, RecordCorrupt."""
    moved = committed_record(Record(asked.record), store_host_ipv6=False)
    queue = MessageQueue(moved.topic, broker_name, moved.queue_id)
    message = ReceivedMessage(Record(moved.record), queue)
    return TransactionCheck(asked.topic, asked.transaction_id, message, asked.checks)


def _tell(event: str, asked: broker_pb2.TransactionCheck, error: Exception) -> None:
    log_event(
        log,
        event,
        level=logging.WARNING,
        topic=asked.topic,
        transaction=asked.transaction_id,
        reason=error,
    )
