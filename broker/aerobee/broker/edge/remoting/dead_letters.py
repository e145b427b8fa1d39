"""Messages that ordered consumers give up: they send them to their group's retry topic themselves.

A consumer that takes messages in order tries again by itself, and asks nobody. Once it has tried as
often as it may, it sends the message to `%RETRY%group`, as Apache's brokers want it, who make it a
dead letter. Only members of the group may do so; everything else for such a topic is refused.

A client whose answer was late sends again, perhaps to a later master. Owns: what was sent before;
the index of keys says what an earlier master has stored. So one message makes one dead letter.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from aerobee.broker.reading.message_lookup import KeyQuery, MessageLookup
from aerobee.broker.retries.topics import RetryTopics
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.remoting_core.command import Command
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.codes import Code
from aerobee.rocketmq_remoting.sends import Send
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, DeadlineExceeded, MessageIllegal
from aerobee.runtime.waiting import Turns
from aerobee.store.format.batch import BatchIllegal
from aerobee.store.format.dead_letter_fields import (
    Death,
    GroupNameTooLong,
    dead_letter_topic,
)
from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.properties import PropertyName, replace_properties
from aerobee.store.format.record import Record
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import HostAddress, RecordCorrupt, RecordIllegal
from aerobee.store.format.retry_records import dead_letter_record

_SAFE_S: Final = 2.5
REMEMBERED_MAX: Final = 10_000
_SAME_ID_MAX: Final = 16
"""Dead letters of one id that are compared with a message."""
_N: Final = PropertyName
_READERS: Final = dict.fromkeys(
    name.encode()
    for name in (
        _N.MIN_OFFSET,
        _N.MAX_OFFSET,
        _N.CONSUME_START_TIME,
        _N.RECONSUME_TIME,
        _N.MAX_RECONSUME_TIMES,
        _N.DELAY,
    )
)
"""What a consumer adds to a message that it has."""


def attempts_if_given_up(fields: Mapping[str, str]) -> int:
    """How often a message was tried, if as often as its consumer may; else 0. `fields` of its send,
    under their long names. Raises InvalidArgument.

    Consumers send the number of failures; some leave out the last one.
    """
    times_max = read.number(fields, "maxReconsumeTimes", -1)
    times = read.number(fields, "reconsumeTimes", 0)
    return max(times, times_max + 1) if 0 <= times_max <= times else 0


class _Given(NamedTuple):
    """A message that was given up. Its id alone could be that of another one; a dead letter that
    was resent and has failed again is not the same."""

    group: str
    topic: str
    message_id: str
    resends: str
    content: bytes

    @classmethod
    def of(cls, group: str, record: Record) -> _Given:
        return cls(
            group,
            record.property_value(_N.RETRY_TOPIC) or "",
            record.unique_key or "",
            record.property_value(_N.DLQ_RESENDS) or "",
            hashlib.sha256(record.body).digest(),
        )


class _Stored(NamedTuple):
    """Where a dead letter is."""

    position: int
    queue_offset: int
    end: int


class RemotingDeadLetters:
    """On the loop."""

    def __init__(
        self,
        writes: OwnWrites,
        topics: RetryTopics,
        lookup: MessageLookup,
        durability: Durability,
        clock: Clock,
        store_host: HostAddress,
        *,
        check_master: Callable[[], None],
        on_dead: Callable[[str, str, int], None],
    ) -> None:
        """`on_dead` gets a group, a topic, and how many of its messages died."""
        self._writes = writes
        self._topics = topics
        self._lookup = lookup
        self._one_by_one = Turns()
        self._stored: OrderedDict[_Given, _Stored] = OrderedDict()
        self._durability = durability
        self._clock = clock
        self._store_host = store_host
        self._check_master = check_master
        self._on_dead = on_dead

    def forget(self) -> None:
        """This replica is no longer master: what was not confirmed may be gone."""
        self._stored.clear()

    async def bury(
        self,
        request: Command,
        send: Send,
        host: HostAddress,
        *,
        group: str,
        client_id: str,
        attempts: int,
    ) -> Command:
        """Raises AerobeeError: it is no dead letter, or may not be safe yet."""
        self._check_master()
        await self._topics.make(group)
        (message,) = send.messages(request.body, is_batch=False, new_id=lambda: "")
        try:
            record = Record(
                encode_record(
                    topic=send.topic.encode(),
                    body=message.body,
                    properties=replace_properties(message.properties, _READERS),
                    flag=message.flag,
                    sys_flag=send.sys_flag,
                    born_timestamp_ms=send.born_ms,
                    born_host=host,
                    store_host_ipv6=self._store_host.is_ipv6,
                    reconsume_times=attempts - 1,
                )
            )
        except RecordIllegal as error:
            raise MessageIllegal(f"it cannot become a dead letter: {error}") from None
        stored = await self._stored_once(group, record, attempts, client_id)
        until_s = self._clock.monotonic_s() + _SAFE_S
        if await self._durability.wait_safe(stored.end, until_s) is not None:
            raise DeadlineExceeded("the dead letter is stored, but not safe in time")
        return request.answer(
            Code.SUCCESS,
            {
                "msgId": offset_message_id(self._store_host, stored.position),
                "queueId": "0",
                "queueOffset": str(stored.queue_offset),
                "transactionId": message.message_id,
            },
        )

    async def _stored_once(
        self, group: str, record: Record, attempts: int, client_id: str
    ) -> _Stored:
        """Raises AerobeeError."""
        given = _Given.of(group, record)
        if not given.message_id:
            return self._store(given, record, attempts, client_id)
        async with self._one_by_one:
            stored = self._stored.get(given) or await self._found(given)
            if stored is None:
                stored = self._store(given, record, attempts, client_id)
            self._stored[given] = stored
            while len(self._stored) > REMEMBERED_MAX:
                self._stored.popitem(last=False)
            return stored

    def _store(self, given: _Given, record: Record, attempts: int, client_id: str) -> _Stored:
        """Raises AerobeeError."""
        self._check_master()
        ipv6 = self._store_host.is_ipv6
        try:
            death = Death(given.group, attempts, self._clock.now_ms(), member=client_id)
            moved = dead_letter_record(record, death, store_host_ipv6=ipv6)
            with self._writes.publishing:
                appended = self._writes.append_copies(moved.topic, 0, [moved.record], ())
        except (BatchIllegal, GroupNameTooLong, RecordCorrupt, RecordIllegal) as error:
            raise MessageIllegal(f"it cannot become a dead letter: {error}") from None
        self._on_dead(given.group, given.topic or record.topic, 1)
        return _Stored(appended.base_physical_offset, appended.base_queue_offset, appended.end)

    async def _found(self, given: _Given) -> _Stored | None:
        """The dead letter that an earlier master, or an earlier run, has made of it."""
        if not given.message_id:
            return None
        try:
            topic = dead_letter_topic(given.group)
            query = KeyQuery(
                topic, given.message_id, True, max_messages=_SAME_ID_MAX, even_unkept=True
            )
            found = await self._lookup.by_key(query)
        except (AerobeeError, GroupNameTooLong):
            return None  # without an index, only what this run has seen is known
        for data in found.records:
            letter = Record(data)
            if _Given.of(given.group, letter) == given:
                end = letter.physical_offset + letter.size
                return _Stored(letter.physical_offset, letter.queue_offset, end)
        return None
