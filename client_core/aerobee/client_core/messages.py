"""Stored messages over all brokers: by id, by position, by key, or from a queue on; and single ones
that an operator sends. No group is involved.

A message is looked for wherever it may be and returned as stored. A broker that does not answer is
never taken for one that has nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.defaults import milliseconds
from aerobee.client_core.group_calls import GroupCalls
from aerobee.client_core.master_search import Masters
from aerobee.client_core.message import Message, MessageId, ReceivedMessage
from aerobee.client_core.offsets import all_of
from aerobee.cluster_view.methods import GET_MESSAGE, PULL, QUERY_MESSAGES, SEND
from aerobee.cluster_view.route import Endpoint, MessageQueue
from aerobee.domain.tag_expression import sendable_tags
from aerobee.runtime import errors
from aerobee.store.format.record import Record, iterate_records
from aerobee.v1 import broker_pb2

FOUND_MESSAGES_MAX = 64
"""Of one answer; and how many are looked for if nothing else is said."""
_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """What a query found over all brokers of the topic."""

    messages: tuple[ReceivedMessage, ...]
    """Newest first."""
    more: bool
    """There are further matches."""
    unanswered: tuple[str, ...]
    """Brokers of the topic that could not be asked; their messages are missing here."""


@dataclass(frozen=True, slots=True)
class QueueMessages:
    """What was read of a queue."""

    messages: tuple[ReceivedMessage, ...]
    """With a filter by tags it may contain a few others, whose tags have the same hash."""
    next_offset: int
    """Where to continue reading."""
    max_offset_end: int


@dataclass(frozen=True, slots=True)
class SentMessage:
    """Where a message is that was sent."""

    message_id: str
    queue: MessageQueue
    queue_offset: int


class Messages:
    """Finds stored messages, and sends single ones.

    Example::

        async with ClusterConnection("127.0.0.1:8081") as connection:
            found = await Messages(connection).by_key("orders", "order-7")
            for message in found.messages:
                print(message.offset_message_id, message.body)
    """

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._masters = Masters(connection, timeout_ms=timeout_ms)
        self._channels = connection.channels
        self._routes = connection.routes
        self._random = connection.random
        self._calls = GroupCalls(connection)
        self._timeout_ms = timeout_ms

    async def send(self, message: Message) -> SentMessage:
        """Send one message, once, to a queue that its broker chooses: for trials and tools.
        Applications use a `Producer`, which repeats what failed and never stores it twice.

        Raises:
            InvalidArgument: it has a delay, a time or a sharding key, which need a producer.
            TopicNotFound, NotWritableTopic, MessageTooLarge, Busy.
            NoBrokerAvailable: no broker takes messages of the topic now.
            Unreachable, DeadlineExceeded: it may have been stored.
        """
        if message.schedule is not None or message.sharding_key is not None:
            raise errors.InvalidArgument(
                "this sends at once, to any queue: leave delay, deliver_at, delay_level and "
                "sharding_key out, or use a Producer"
            )
        topic = message.topic
        route = await self._routes.route(topic, timeout_ms=self._timeout_ms)
        names = sorted({queue.broker_name for queue in route.writable_queues})
        if not names:
            raise errors.NoBrokerAvailable(
                f"no broker takes messages of topic {topic!r} now: see `aerobee topic show`, which "
                "also says whether clients may send to it"
            )
        broker_name = self._random.choice(names)
        master = route.masters[broker_name]
        request = broker_pb2.SendRequest(
            topic=topic,
            queue_id=-1,
            body=message.body,
            tag=message.tag or "",
            keys=message.keys,
            properties=message.properties,
            flag=message.flag,
            timeout_ms=self._timeout_ms,
        )
        sent = await self._channels.call(master.address, SEND, request, timeout_ms=self._timeout_ms)
        queue = MessageQueue(topic, broker_name, sent.queue_id)
        return SentMessage(sent.message_id, queue, sent.ack.base_queue_offset)

    async def by_id(self, message_id: str) -> ReceivedMessage:
        """The message with this offset message id.

        All brokers are asked, because one that moved to another address still knows the messages
        that it stored at the old one.

        Raises:
            MessageIllegal: the text is not an offset message id.
            MessageNotFound: no broker has it; retention may have removed it.
            Unreachable, DeadlineExceeded: no nameserver answers, or the message is not on the
                brokers that answer and others do not.
        """
        named = MessageId.parse(message_id)
        request = broker_pb2.GetMessageRequest(offset_message_id=message_id)
        readers = await self._masters.readers()
        answers = await all_of([self._get(endpoint, request) for endpoint in readers])
        found = [
            (endpoint.address != named.store_host, endpoint.broker_name, answer)
            for endpoint, answer in zip(readers, answers, strict=True)
            if isinstance(answer, ReceivedMessage)
        ]
        if found:
            # Two can have it only if one took over the other's address: the one of its current
            # owner counts.
            return min(found, key=lambda each: each[:2])[2]
        silent = [*readers.unanswered]
        silent += [
            endpoint.broker_name
            for endpoint, answer in zip(readers, answers, strict=True)
            # A slave, asked while there is no master, may not have everything.
            if not isinstance(answer, errors.MessageNotFound) or not endpoint.is_master
        ]
        if silent:
            raise errors.Unreachable(
                f"message {message_id} is not on the brokers that answered, and "
                f"{', '.join(silent)} did not answer: try again later"
            )
        asked = ", ".join(endpoint.broker_name for endpoint in readers) or "none is alive"
        raise errors.MessageNotFound(
            f"no broker has message {message_id} (asked: {asked}): it names byte "
            f"{named.physical_offset} in the log of the broker that was at {named.store_host}; "
            "retention may have removed it, or it is of another cluster"
        )

    async def by_offset(self, broker_name: str, physical_offset: int) -> ReceivedMessage:
        """The message that starts at this byte of a broker's log.

        Raises:
            NoBrokerAvailable: no live broker has this name.
            MessageNotFound: no message starts there. Unreachable, DeadlineExceeded.
        """
        readers = await self._masters.readers()
        for endpoint in readers:
            if endpoint.broker_name == broker_name:
                answer = await self._get(
                    endpoint, broker_pb2.GetMessageRequest(physical_offset=physical_offset)
                )
                if isinstance(answer, errors.AerobeeError):
                    raise answer
                return answer
        known = ", ".join(endpoint.broker_name for endpoint in readers) or "none"
        raise errors.NoBrokerAvailable(
            f"no live broker is named {broker_name!r} (there are: {known}): see `aerobee cluster "
            "show`"
        )

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 0,
        max_messages: int = FOUND_MESSAGES_MAX,
    ) -> FoundMessages:
        """Messages that carry the key, newest first: at most `max_messages`. Each 64 of a broker
        cost a call.

        `begin_ms` and `end_ms` limit the store time, both inclusive; 0 leaves that side open.

        Raises:
            TopicNotFound, IllegalName, InvalidArgument.
            NoBrokerAvailable: no broker of the topic answers.
            Unreachable, DeadlineExceeded: no nameserver answers.
        """
        request = broker_pb2.QueryMessagesRequest(
            topic=topic, key=key, begin_ms=begin_ms, end_ms=end_ms, max_messages=max_messages
        )
        return await self._query(request)

    async def by_unique_key(
        self,
        topic: str,
        unique_key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 0,
        max_messages: int = FOUND_MESSAGES_MAX,
    ) -> FoundMessages:
        """The message to which its producer gave this id; several if it was sent more than once.

        Bounds and errors as in `by_key`.
        """
        return await self._query(
            broker_pb2.QueryMessagesRequest(
                topic=topic,
                unique_key=unique_key,
                begin_ms=begin_ms,
                end_ms=end_ms,
                max_messages=max_messages,
            )
        )

    async def from_queue(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 0,
        tags: str = "*",
        sql: str = "",
        wait: float = 0.0,
    ) -> QueueMessages:
        """Messages of a queue from an offset on, at most 1 MiB; nothing is committed.

        For an offset that the queue does not have: no messages, and the nearest one to continue
        from.

        Args:
            max_messages: 0: as many as fit.
            tags: only those with these tags, such as `paid || refunded`.
            sql: only those for whose properties this is true (docs/filters.md); in place of `tags`.
            wait: for how many seconds the broker waits for a message if there is none.

        Raises:
            TopicNotFound, QueueNotFound, NoBrokerAvailable, FilterIllegal, Unreachable,
            DeadlineExceeded.
        """
        wait_ms = milliseconds(wait) if wait else 0
        if not sql:
            sendable_tags(tags)  # else they are refused
        wanted = broker_pb2.Filter(expression=tags)
        if sql:
            wanted = broker_pb2.Filter(type=broker_pb2.SQL92, expression=sql)
        request = broker_pb2.PullRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            filter=wanted,
            max_bytes=_READ_BYTES,
            max_messages=max_messages,
            wait_ms=wait_ms,
        )
        result = await self._calls.at_any(
            queue.topic,
            queue.broker_name,
            PULL,
            request,
            timeout_ms=self._timeout_ms + wait_ms,
        )
        messages = tuple(ReceivedMessage(each, queue) for each in iterate_records(result.records))
        return QueueMessages(messages, result.next_offset, result.max_offset)

    # ---------------------------------------------------------------------- asking

    async def _get(
        self, endpoint: Endpoint, request: broker_pb2.GetMessageRequest
    ) -> ReceivedMessage | errors.AerobeeError:
        """The message, or why this broker does not return it: MessageNotFound if it has none."""
        try:
            answer = await self._channels.call(
                endpoint.address, GET_MESSAGE, request, timeout_ms=self._timeout_ms
            )
        except errors.InvalidArgument:
            raise
        except errors.AerobeeError as error:
            return error
        return _received(answer.record, endpoint.broker_name)

    async def _query(self, request: broker_pb2.QueryMessagesRequest) -> FoundMessages:
        wanted = request.max_messages or FOUND_MESSAGES_MAX
        route = await self._routes.route(request.topic, timeout_ms=self._timeout_ms)
        names = list(route.queues_by_broker)
        answers = await all_of(
            [self._found_on(route.master(name), request, wanted) for name in names]
        )
        by_broker = {
            name: answer for name, answer in zip(names, answers, strict=True) if answer is not None
        }
        unanswered = tuple(name for name in names if name not in by_broker)
        if not by_broker:
            raise errors.NoBrokerAvailable(
                f"no broker of topic {request.topic} answers ({', '.join(unanswered)}): see "
                "`aerobee cluster show`"
            )
        messages = _newest_first({name: records for name, (records, _) in by_broker.items()})
        more = len(messages) > wanted or any(is_more for _, is_more in by_broker.values())
        return FoundMessages(tuple(messages[:wanted]), more, unanswered)

    async def _found_on(
        self, endpoint: Endpoint | None, request: broker_pb2.QueryMessagesRequest, wanted: int
    ) -> tuple[Sequence[bytes], bool] | None:
        """The newest `wanted` records of a broker, page by page, and whether there are others. None
        from a broker that cannot be asked now."""
        if endpoint is None:
            return None
        records: list[bytes] = []
        page = broker_pb2.QueryMessagesRequest()
        page.CopyFrom(request)
        while True:
            page.max_messages = min(wanted - len(records), FOUND_MESSAGES_MAX)
            try:
                answer = await self._channels.call(
                    endpoint.address, QUERY_MESSAGES, page, timeout_ms=self._timeout_ms
                )
            except (
                errors.Unreachable,
                errors.DeadlineExceeded,
                errors.ShuttingDown,
                errors.StoreFailed,
            ):
                return None
            if answer.records and _repeats(answer.records[0], page.before_physical_offset):
                return records, True  # An older broker, which has no pages.
            records += answer.records
            if not answer.more or not answer.records or len(records) >= wanted:
                return records, answer.more
            page.before_physical_offset = Record(answer.records[-1]).physical_offset


def _repeats(record: bytes, before: int) -> bool:
    """Whether a record that should begin before this log offset does not."""
    return 0 < before <= Record(record).physical_offset


def _newest_first(by_broker: Mapping[str, Sequence[bytes]]) -> Sequence[ReceivedMessage]:
    messages = [
        _received(record, name) for name, records in by_broker.items() for record in records
    ]
    messages.sort(
        key=lambda message: (message.store_timestamp_ms, message.record.physical_offset),
        reverse=True,
    )
    return messages


def _received(data: bytes, broker_name: str) -> ReceivedMessage:
    record = Record(data)
    return ReceivedMessage(record, MessageQueue(record.topic, broker_name, record.queue_id))
