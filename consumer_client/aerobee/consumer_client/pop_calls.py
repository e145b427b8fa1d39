"""What a SimpleConsumer asks of brokers: one poll, and calls about messages that it has."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.group_calls import GroupCalls
from aerobee.cluster_view.methods import ACKNOWLEDGE, CHANGE_INVISIBLE, POP, REJECT
from aerobee.consumer_client.filters import Expression, wire_filter
from aerobee.consumer_client.popped_message import PoppedMessage, Source, by_source, decode_popped
from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2

MESSAGES_PER_POLL_MAX = 32
MESSAGES_PER_CALL_MAX = 256

Part = Callable[[Source, Sequence[PoppedMessage]], Awaitable[Sequence[common_pb2.Status]]]


class Answered(Enum):
    """What became of an answer about a message."""

    ACKNOWLEDGED = auto()
    GIVEN_BACK = auto()
    RENEWED = auto()
    REJECTED = auto()
    REFUSED = auto()


class PopCalls:
    """For one member of a group; each call finds the master, also a new one."""

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        group: str,
        client_id: str,
        request_timeout_ms: int,
        failover_timeout_ms: int,
    ) -> None:
        """`request_timeout_ms`: of a poll, beside its wait. `failover_timeout_ms`: of other
        calls."""
        self._calls = GroupCalls(connection)
        self._random = connection.random
        self._group = group
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._failover_timeout_ms = failover_timeout_ms
        self.received = 0
        """Messages so far."""
        self.counts: Counter[Answered] = Counter()
        """Answers so far."""
        self.troubles: dict[Source, errors.AerobeeError] = {}
        """Why the last poll of a source failed, of those whose did."""

    async def poll(
        self,
        source: Source,
        expression: Expression,
        *,
        count: int,
        invisible_ms: int,
        wait_ms: int,
    ) -> list[PoppedMessage]:
        """Raises AerobeeError."""
        try:
            messages = await self._poll(source, expression, count, invisible_ms, wait_ms)
        except errors.AerobeeError as error:
            self.troubles[source] = error
            raise
        self.troubles.pop(source, None)
        self.received += len(messages)
        return messages

    async def _poll(
        self, source: Source, expression: Expression, count: int, invisible_ms: int, wait_ms: int
    ) -> list[PoppedMessage]:
        request = broker_pb2.PopRequest(
            group=self._group,
            topic=source.topic,
            client_id=self._client_id,
            filter=wire_filter(expression),
            messages_max=min(count, MESSAGES_PER_POLL_MAX),
            invisible_ms=invisible_ms,
            wait_ms=wait_ms,
            # A call that is repeated gets what was taken for it.
            attempt_id=f"{self._random.getrandbits(64):016x}",
        )
        since_s = asyncio.get_running_loop().time()
        answer = await self._calls.at_master(
            source.topic,
            source.broker_name,
            POP,
            request,
            timeout_ms=wait_ms + self._request_timeout_ms,
        )
        if not answer.messages:
            return []
        return decode_popped(source, answer, invisible_ms=invisible_ms, since_s=since_s)

    async def acknowledge(self, messages: Sequence[PoppedMessage]) -> None:
        """Raises AerobeeError: the first refusal; the others are done."""

        async def ask(source: Source, some: Sequence[PoppedMessage]) -> Sequence[common_pb2.Status]:
            request = broker_pb2.AcknowledgeRequest(
                group=self._group,
                topic=source.topic,
                messages=[message.handle for message in some],
            )
            answer = await self._calls.at_master(
                *source, ACKNOWLEDGE, request, timeout_ms=self._failover_timeout_ms
            )
            return answer.results

        await self._each(messages, ask, Answered.ACKNOWLEDGED)

    async def change(
        self, messages: Sequence[PoppedMessage], invisible_ms: int, *, settles: bool
    ) -> None:
        """As `acknowledge`; the messages have new handles. `settles`: this client is done with
        them."""

        async def ask(source: Source, some: Sequence[PoppedMessage]) -> Sequence[common_pb2.Status]:
            request = broker_pb2.ChangeInvisibleRequest(
                group=self._group,
                topic=source.topic,
                messages=[message.handle for message in some],
                invisible_ms=invisible_ms,
            )
            since_s = asyncio.get_running_loop().time()
            answer = await self._calls.at_master(
                *source, CHANGE_INVISIBLE, request, timeout_ms=self._failover_timeout_ms
            )
            for message, result in zip(some, answer.results, strict=True):
                if result.status.code == common_pb2.OK:
                    message.invisible_ms, message.since_s = invisible_ms, since_s
                    message.handle.serial = result.serial
                    message.handle.visible_ms = result.visible_ms
            return [result.status for result in answer.results]

        kind = Answered.GIVEN_BACK if settles else Answered.RENEWED
        await self._each(messages, ask, kind, settles=settles)

    async def reject(
        self, messages: Sequence[PoppedMessage], reason_class: str, reason: str
    ) -> None:
        """As `acknowledge`."""

        async def ask(source: Source, some: Sequence[PoppedMessage]) -> Sequence[common_pb2.Status]:
            request = broker_pb2.RejectRequest(
                group=self._group,
                topic=source.topic,
                client_id=self._client_id,
                messages=[message.handle for message in some],
                reason_class=reason_class,
                reason=reason,
            )
            answer = await self._calls.at_master(
                *source, REJECT, request, timeout_ms=self._failover_timeout_ms
            )
            return answer.results

        await self._each(messages, ask, Answered.REJECTED)

    async def _each(
        self, messages: Sequence[PoppedMessage], ask: Part, kind: Answered, *, settles: bool = True
    ) -> None:
        """`settles`: this client is done with the messages then."""
        refusal: errors.AerobeeError | None = None
        for source, some in by_source(messages):
            for first in range(0, len(some), MESSAGES_PER_CALL_MAX):
                part = some[first : first + MESSAGES_PER_CALL_MAX]
                refused = 0
                for message, status in zip(part, await ask(source, part), strict=True):
                    if status.code == common_pb2.OK:
                        message.is_settled = settles
                        continue
                    if status.code == common_pb2.STALE_HANDLE:
                        message.is_settled = True
                    refused += 1
                    refusal = refusal or error_from_code(status.code, status.message)
                self.counts[kind] += len(part) - refused
                self.counts[Answered.REFUSED] += refused
        if refusal is not None:
            raise refusal
