"""Messages that wait for their time, over all brokers: found, recalled, delivered now, moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message as ProtoMessage

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.master_search import search_masters
from aerobee.client_core.recurring import RecurringSchedules
from aerobee.client_core.schedule import DeliverAt, time_ms
from aerobee.cluster_view.methods import (
    DELIVER_SCHEDULED_NOW,
    LIST_SCHEDULED,
    RECALL_SCHEDULED,
    RESCHEDULE,
    Method,
)
from aerobee.cluster_view.route import Endpoint, MessageQueue
from aerobee.runtime import errors
from aerobee.store.format.recall_handle import RecallHandle, RecallHandleIllegal
from aerobee.v1 import broker_pb2

WAITING_MESSAGES_MAX = 100

Request = TypeVar("Request", bound=ProtoMessage)
Answer = TypeVar("Answer", bound=ProtoMessage)


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message waiting at a broker. Times are Unix ms."""

    queue: MessageQueue
    """Where it will be delivered."""
    deliver_ms: int
    delay_level: int
    """0: it waits for a time."""
    recall_handle: str
    """Empty for a message with a delay level, or without an id."""
    message_id: str
    tag: str
    keys: tuple[str, ...]
    body_bytes: int
    born_timestamp_ms: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class WaitingMessages:
    """What a search found over all brokers."""

    messages: tuple[WaitingMessage, ...]
    """Those due first come first."""
    more: bool
    """Further messages are waiting."""
    unanswered: tuple[str, ...]
    """Brokers that could not be asked; their messages are missing here."""


class Schedules(RecurringSchedules):
    """Finds and changes messages that wait for their time, and schedules that recur.

    Example::

        async with ClusterConnection("127.0.0.1:8081") as connection:
            schedules = Schedules(connection)
            found = await schedules.list("orders", key="order-7")
            for waiting in found.messages:
                await schedules.recall(waiting.recall_handle)
    """

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        super().__init__(connection, timeout_ms=timeout_ms)

    async def list(
        self,
        topic: str = "",
        *,
        begin_ms: int = 0,
        end_ms: int = 0,
        key: str = "",
        max_messages: int = WAITING_MESSAGES_MAX,
    ) -> WaitingMessages:
        """Waiting messages, ordered by time.

        Args:
            topic: only those for this topic; empty: for any.
            begin_ms, end_ms: only those due at or after the first of these and before the second; 0
                leaves a side open.
            key: only those with this key, or this message id. All that wait in the time are looked
                through.
            max_messages: at least 1.

        Raises:
            IllegalName, InvalidArgument.
            NoBrokerAvailable: no broker answers.
            Unreachable, DeadlineExceeded: no nameserver answers.
        """
        request = broker_pb2.ListScheduledRequest(
            topic=topic, begin_ms=begin_ms, end_ms=end_ms, key=key
        )

        async def page(
            endpoint: Endpoint, count: int, after: str
        ) -> tuple[Sequence[WaitingMessage], str]:
            asked = broker_pb2.ListScheduledRequest(after=after, messages_max=count)
            asked.MergeFrom(request)
            answer = await self._channels.call(
                endpoint.address, LIST_SCHEDULED, asked, timeout_ms=self._timeout_ms
            )
            found = [_waiting(each, endpoint.broker_name) for each in answer.messages]
            return found, answer.after

        found = await search_masters(
            await self._masters.roll_call(),
            page,
            begin="",
            order=lambda each: each.deliver_ms,
            items_max=max_messages,
        )
        return WaitingMessages(*found)

    async def recall(self, recall_handle: str) -> None:
        """The message is never delivered.

        Raises:
            InvalidArgument: the text is not a recall handle.
            MessageNotFound: no such message waits: it was delivered, recalled or moved.
            NoBrokerAvailable: its broker group has no master now.
            DeadlineExceeded: it is unknown whether it was recalled; ask again.
            Unreachable, NotMaster, Busy: nothing was done.
        """
        request = broker_pb2.RecallScheduledRequest(recall_handle=recall_handle)
        await self._change(RECALL_SCHEDULED, request, recall_handle)

    async def deliver_now(self, recall_handle: str) -> None:
        """The message is delivered at once. Raises as `recall`."""
        request = broker_pb2.DeliverScheduledNowRequest(recall_handle=recall_handle)
        await self._change(DELIVER_SCHEDULED_NOW, request, recall_handle)

    async def move(self, recall_handle: str, deliver_at: DeliverAt) -> str:
        """The message waits for another time. Returns its new recall handle.

        Raises as `recall`, and MessageIllegal: the time is invalid.
        """
        request = broker_pb2.RescheduleRequest(
            recall_handle=recall_handle, deliver_ms=time_ms(deliver_at)
        )
        return (await self._change(RESCHEDULE, request, recall_handle)).recall_handle

    # ---------------------------------------------------------------------- asking

    async def _change(
        self, method: Method[Request, Answer], request: Request, handle: str
    ) -> Answer:
        try:
            broker_name = RecallHandle.decode(handle).broker_name
        except RecallHandleIllegal as error:
            raise errors.InvalidArgument(str(error)) from None
        master = await self._masters.of(broker_name)
        return await self._channels.call(
            master.address, method, request, timeout_ms=self._timeout_ms
        )


def _waiting(found: broker_pb2.ScheduledMessage, broker_name: str) -> WaitingMessage:
    return WaitingMessage(
        queue=MessageQueue(found.topic, broker_name, found.queue_id),
        deliver_ms=found.deliver_ms,
        delay_level=found.delay_level,
        recall_handle=found.recall_handle,
        message_id=found.message_id,
        tag=found.tag,
        keys=tuple(found.keys),
        body_bytes=found.body_bytes,
        born_timestamp_ms=found.born_timestamp_ms,
        store_timestamp_ms=found.store_timestamp_ms,
    )
