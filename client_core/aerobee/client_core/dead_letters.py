"""Dead letters: found by group, topic, key, reason and time; resent or dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.group_calls import UNANSWERED, GroupCalls
from aerobee.client_core.master_search import Masters, nobody_answers
from aerobee.client_core.message import ReceivedMessage
from aerobee.cluster_view.methods import PULL, SETTLE_DEAD_LETTERS
from aerobee.cluster_view.route import MessageQueue
from aerobee.domain.names import check_group_name
from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.store.format.dead_letter_fields import (
    DeadLetter,
    GroupNameTooLong,
    dead_letter_topic,
    read_dead_letter,
    retry_topic,
)
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2

SETTLED_BY: Final = "CID_RMQ_SYS_DEAD_LETTERS"
"""The group in which settled letters are finished."""
SETTLED_AT_ONCE: Final = 100
_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Letter:
    """One unsettled dead letter."""

    message: ReceivedMessage
    told: DeadLetter
    """Everything that is known of it."""

    @property
    def topic(self) -> str:
        """The topic that it was first sent to."""
        return self.told.origin.topic

    @property
    def reason(self) -> str:
        """Why it died: class and text of the listener's last exception."""
        death = self.told.death
        return f"{death.reason_class}: {death.reason}" if death.reason_class else death.reason

    @property
    def attempts(self) -> int:
        """How often the group was given it."""
        return self.told.death.attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which letters to select; an empty field, or None, selects all."""

    topic: str = ""
    """The topic they were first sent to."""
    key: str = ""
    """One of the message's keys, or its id."""
    reason: str = ""
    """A part of the exception's class or text."""
    begin_ms: int | None = None
    """When they became dead letters, Unix ms; both inclusive."""
    end_ms: int | None = None

    def selects(self, letter: Letter) -> bool:
        message, told = letter.message, letter.told
        death = told.death
        return (
            (not self.topic or told.origin.topic == self.topic)
            and (not self.key or self.key in (*message.keys, message.message_id))
            and (not self.reason or self.reason in f"{death.reason_class}: {death.reason}")
            and (self.begin_ms is None or death.time_ms >= self.begin_ms)
            and (self.end_ms is None or death.time_ms <= self.end_ms)
        )


class FoundLetters:
    """Letters as they are read, broker by broker, oldest first: for one `async for`."""

    def __init__(self, letters: AsyncIterator[Letter], silent: Collection[str]) -> None:
        self._letters = letters
        self._silent = silent

    def __aiter__(self) -> AsyncIterator[Letter]:
        return self._letters

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Broker groups that could not be asked so far; their letters, or the rest of them, are
        missing."""
        return tuple(sorted(self._silent))


class DeadLetters:
    """Dead letters of one cluster.

    Example::

        async with ClusterConnection("127.0.0.1:8081") as connection:
            letters = DeadLetters(connection)
            async for letter in letters.find("billing", LetterFilter(reason="ValueError")):
                await letters.resend("billing", [letter])
    """

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._masters = Masters(connection, timeout_ms=timeout_ms)
        self._channels = connection.channels
        self._calls = GroupCalls(connection)
        self._timeout_ms = timeout_ms

    def find(self, group: str, wanted: LetterFilter | None = None) -> FoundLetters:
        """A group's letters, broker by broker, oldest first.

        Raises:
            IllegalName; while they are read: Unreachable, DeadlineExceeded: no nameserver answers;
            NoBrokerAvailable: no broker does.
        """
        check_group_name(group)
        silent = set[str]()
        return FoundLetters(self._find(group, wanted or LetterFilter(), silent), silent)

    async def _find(
        self, group: str, wanted: LetterFilter, silent: set[str]
    ) -> AsyncIterator[Letter]:
        call = await self._masters.roll_call()
        silent.update(call.absent)
        for endpoint in call.masters:
            queue = MessageQueue(dead_letter_topic(group), endpoint.broker_name, 0)
            try:
                async for message in self._read(endpoint.address, queue):
                    letter = Letter(message, read_dead_letter(message.record))
                    if wanted.selects(letter):
                        yield letter
            except UNANSWERED:
                silent.add(endpoint.broker_name)
        if silent and len(silent) == len(call.masters) + len(call.absent):
            raise nobody_answers(sorted(silent))

    async def _read(self, address: str, queue: MessageQueue) -> AsyncIterator[ReceivedMessage]:
        offset, end = 0, None
        while end is None or offset < end:
            request = broker_pb2.PullRequest(
                topic=queue.topic, offset=offset, group=SETTLED_BY, max_bytes=_READ_BYTES
            )
            try:
                result = await self._channels.call(
                    address, PULL, request, timeout_ms=self._timeout_ms
                )
            except errors.TopicNotFound:
                return
            # Messages that arrive while they are read are left for the next time.
            end = result.max_offset if end is None else end
            for record in iterate_records(result.records):
                yield ReceivedMessage(record, queue)
            if result.next_offset <= offset:
                return
            offset = result.next_offset

    async def resend(
        self,
        group: str,
        letters: Sequence[Letter],
        *,
        to_all_groups: bool = False,
        topic: str = "",
        resends_max: int = 0,
    ) -> list[errors.AerobeeError | None]:
        """Resend letters, each exactly once, to the group that failed: no other group gets them. An
        answer is None, or the reason why the letter stays where it is.

        Args:
            to_all_groups: send them to their original topics instead, so that every group that
                reads these gets them again. Needed for a group with ordered listeners, which reads
                nothing else.
            topic: send them to this topic instead, for all groups that read it.
            resends_max: how often a message may be resent the same way; 0: 3 times.

        Raises:
            InvalidArgument: both places are given; or the group does not read its retry topic.
            NoBrokerAvailable, AerobeeError: some may have been sent; ask again.
        """
        if to_all_groups and topic:
            raise errors.InvalidArgument("give either topic or to_all_groups")
        try:
            target = topic if topic or to_all_groups else retry_topic(group)
        except GroupNameTooLong as error:
            raise errors.InvalidArgument(str(error)) from None
        resend = broker_pb2.Resend(topic=target, resends_max=resends_max)
        return await self._settle(group, letters, resend)

    async def drop(self, group: str, letters: Sequence[Letter]) -> list[errors.AerobeeError | None]:
        """Remove letters from the list. As `resend`."""
        return await self._settle(group, letters, None)

    async def _settle(
        self, group: str, letters: Sequence[Letter], resend: broker_pb2.Resend | None
    ) -> list[errors.AerobeeError | None]:
        answers: dict[int, errors.AerobeeError | None] = {}
        by_queue: dict[MessageQueue, list[int]] = {}
        for index, letter in enumerate(letters):
            by_queue.setdefault(letter.message.queue, []).append(index)
        for queue, indexes in by_queue.items():
            for first in range(0, len(indexes), SETTLED_AT_ONCE):
                some = indexes[first : first + SETTLED_AT_ONCE]
                response = await self._calls.at_master(
                    queue.topic,
                    queue.broker_name,
                    SETTLE_DEAD_LETTERS,
                    broker_pb2.SettleDeadLettersRequest(
                        group=group,
                        offsets=[letters[index].message.queue_offset for index in some],
                        resend=resend,
                    ),
                    timeout_ms=self._timeout_ms,
                )
                for index, result in zip(some, response.results, strict=True):
                    code, text = result.status.code, result.status.message
                    answers[index] = None if code == common_pb2.OK else error_from_code(code, text)
        return [answers[index] for index in range(len(letters))]
