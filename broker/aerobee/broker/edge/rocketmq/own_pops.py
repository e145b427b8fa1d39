"""This broker's queues as official clients consume them: the broker chooses what they get."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.pop.requests import Handled, Poll
from aerobee.broker.popping.moves import NO_REASON
from aerobee.broker.popping.pops import Popped, Pops
from aerobee.broker.reading.filters import filter_of
from aerobee.broker.reading.message_lookup import KeyQuery, MessageLookup
from aerobee.broker.sending.guard import Guard
from aerobee.domain.names import is_retry_topic
from aerobee.domain.topic_attributes import MESSAGE_TYPE
from aerobee.rocketmq_api.ports import PollRequest, Received, Rung
from aerobee.rocketmq_api.rules.handles import ReceiptHandle
from aerobee.rocketmq_api.rules.message_ids import message_id_of
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    AerobeeError,
    IllegalName,
    InvalidArgument,
    StaleHandle,
    TopicNotFound,
)
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.format.dead_letter_fields import GroupNameTooLong, dead_letter_topic
from aerobee.store.format.pop_records import retry_topics_of
from aerobee.store.format.record import Record

RETRIES_FIRST: Final = 0.2
"""Share of polls that look into the group's retry topic first."""
_PRIORITY: Final = "PRIORITY"


class OwnPops:
    """Translates for `Pops`."""

    def __init__(
        self,
        broker_name: str,
        pops: Pops,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        guard: Guard,
        lookup: MessageLookup,
        clock: Clock,
        chance: random.Random,
        *,
        is_master: Callable[[], bool],
        is_ordered: Callable[[str], bool],
        on_delivered: Callable[[str, str, int, int], None],
        is_taken: Callable[[GroupQueue], bool] = lambda key: False,
    ) -> None:
        """`on_delivered` gets what was sent: group, topic, messages, bytes. `is_taken`: whether
        others than POP consume a retry topic for the group; then polls leave it to them."""
        self.broker_name = broker_name
        self.is_master = is_master
        self._pops = pops
        self._topics = topics
        self._offsets = offsets
        self._guard = guard
        self._lookup = lookup
        self._clock = clock
        self._chance = chance
        self._is_ordered = is_ordered
        self._on_delivered = on_delivered
        self._is_taken = is_taken
        self._turn = 0

    async def receive(self, wanted: PollRequest, rings: Rung | None = None) -> list[Received]:
        await self._offsets.acting_for(wanted.group)
        keys = self.keys(wanted.group, wanted.topic, wanted.queue_id)
        passing = filter_of(wanted.wish, is_exact=True)
        wait_s = wanted.wait_ms / 1_000
        popped = await self._pops.receive(keys, _poll(wanted), passing, wait_s, rings)
        return self._all_received(wanted, popped)

    async def look(
        self, wanted: PollRequest, keys: Sequence[GroupQueue], deadline_s: float
    ) -> list[Received]:
        """What is there now, in the queues that `keys` has returned; see `Pops.look`. Raises as
        `receive`."""
        await self._offsets.acting_for(wanted.group)
        passing = filter_of(wanted.wish, is_exact=True)
        popped = await self._pops.look(keys, _poll(wanted), passing, deadline_s)
        return self._all_received(wanted, popped)

    def _all_received(self, wanted: PollRequest, popped: Sequence[Popped]) -> list[Received]:
        if popped:
            size = sum(each.record.size for each in popped)
            self._on_delivered(wanted.group, wanted.topic, len(popped), size)
        return [self._received(each) for each in popped]

    def keys(self, group: str, topic: str, queue_id: int = -1) -> list[GroupQueue]:
        """The queues of a poll, in the order in which they are looked at; `queue_id` as in
        `PollRequest`. Raises TopicNotFound, NotReadableTopic, QueueNotFound."""
        if topic not in self._topics and is_retry_topic(topic):
            return []  # it is made here with its first message
        self._guard.check_read(topic, max(0, queue_id))
        config = self._topics.get(topic)
        count = 1 if config is None else config.read_queue_count
        if queue_id >= 0:
            ids = [queue_id]
        elif config is not None and config.attributes.get(MESSAGE_TYPE) == _PRIORITY:
            ids = list(range(count - 1, -1, -1))
        else:
            self._turn += 1
            ids = [(self._turn + each) % count for each in range(count)]
        keys = [GroupQueue(group, topic, queue_id) for queue_id in ids]
        if not self._is_ordered(group) and (retries := self._retries(group, topic)):
            at = 0 if self._chance.random() < RETRIES_FIRST else len(keys)
            keys[at:at] = retries
        return keys

    def _retries(self, group: str, topic: str) -> list[GroupQueue]:
        keys = [
            GroupQueue(group, name, 0)
            for name in retry_topics_of(group, topic)
            if name in self._topics
        ]
        return [key for key in keys if not self._is_taken(key)]

    def _received(self, popped: Popped) -> Received:
        key, delivery, record = popped
        handle = ReceiptHandle(
            self.broker_name,
            key.topic,
            key.group,
            key.queue_id,
            delivery.offset,
            delivery.serial,
            delivery.visible_ms,
        )
        return Received(handle, delivery.attempt, record)

    def give_back(self, received: Sequence[Received]) -> None:
        self._pops.give_back(
            (_key(each.handle), each.handle.queue_offset, each.handle.serial) for each in received
        )

    async def acknowledge(self, handles: Sequence[ReceiptHandle]) -> list[AerobeeError | None]:
        by_key: dict[GroupQueue, list[int]] = {}
        for index, handle in enumerate(handles):
            by_key.setdefault(_key(handle), []).append(index)
        results: list[AerobeeError | None] = [None] * len(handles)
        for key, indices in by_key.items():
            try:
                asked = [(handles[each].queue_offset, handles[each].serial) for each in indices]
                handled = await self._pops.acknowledge(key, asked)
            except AerobeeError as error:
                for index in indices:
                    results[index] = error
                continue
            for index, each in zip(indices, handled, strict=True):
                results[index] = self._refusal(handles[index], each)
        return results

    async def change(
        self, handle: ReceiptHandle, invisible_ms: int, *, is_counted: bool
    ) -> ReceiptHandle:
        handled, delivery = await self._pops.change(
            _key(handle), handle.queue_offset, handle.serial, invisible_ms, is_counted=is_counted
        )
        if delivery is None:
            finished = handled is Handled.FINISHED
            raise _stale(
                "the message is finished" if finished else "a newer one was issued for the message"
            )
        return handle._replace(serial=delivery.serial, visible_ms=delivery.visible_ms)

    async def forward(
        self, handle: ReceiptHandle, client_id: str, reason: tuple[str, str] = NO_REASON
    ) -> None:
        handled = await self._pops.forward(
            _key(handle), handle.queue_offset, handle.serial, client_id, reason
        )
        if (refusal := self._refusal(handle, handled)) is not None:
            raise refusal

    async def forward_by_id(
        self, topic: str, group: str, message_id: str, client: str, client_id: str
    ) -> None:
        def is_wanted(record: Record) -> bool:
            return message_id_of(record) == message_id

        found = await self._pops.held(self.keys(group, topic), client, is_wanted)
        if found is not None:
            key, delivery = found
            handled = await self._pops.forward(key, delivery.offset, delivery.serial, client_id)
            if handled is not Handled.STALE:
                return
        # A client that missed the answer asks again for as long as it is refused.
        if not await self._is_dead(group, message_id):
            raise StaleHandle(
                f"the receipt handle is empty, and client {client_id} of group {group} has no "
                f"message {message_id} of topic {topic} here: receive it again"
            )

    async def _is_dead(self, group: str, message_id: str) -> bool:
        with suppress(GroupNameTooLong, IllegalName, TopicNotFound, InvalidArgument):
            query = KeyQuery(
                dead_letter_topic(group),
                message_id,
                is_unique_key=True,
                max_messages=1,
                even_unkept=True,
            )
            return bool((await self._lookup.by_key(query)).records)
        return False

    def _refusal(self, handle: ReceiptHandle, handled: Handled) -> StaleHandle | None:
        """A finished message may be finished again, as long as no other client got it."""
        if handled is Handled.DONE:
            return None
        is_over = 0 < handle.visible_ms <= self._clock.now_ms()
        if handled is Handled.FINISHED and not is_over:
            return None
        return _stale("its time is over, or a newer one was issued for the message")


def _poll(wanted: PollRequest) -> Poll:
    return Poll(
        wanted.client,
        wanted.messages_max,
        wanted.invisible_ms,
        wanted.attempt_id,
        wanted.attempts_max,
        wanted.topic,
        wanted.begins_at_first,
        wanted.takes_runs,
    )


def _key(handle: ReceiptHandle) -> GroupQueue:
    return GroupQueue(handle.group, handle.topic, handle.queue_id)


def _stale(reason: str) -> StaleHandle:
    return StaleHandle(f"receipt handle is expired: {reason}; receive the message again")
