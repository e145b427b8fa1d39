"""What would be lost if a broker group were removed now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from aerobee.broker.delayed.feature import Delays
from aerobee.broker.observe.unsettled import unsettled_letters
from aerobee.broker.opened import OpenedFolder
from aerobee.broker.reading.unread import GroupUnread, UnreadCounts
from aerobee.broker.recurring.feature import Recurring
from aerobee.broker.sending.guard import Guard
from aerobee.broker.transactions.feature import Transactions
from aerobee.domain.names import (
    RETRY_PREFIX,
    is_system_group,
    is_system_topic,
)
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy
from aerobee.runtime.metrics.slices import Slices
from aerobee.store.engine.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class Remaining:
    """At one moment."""

    readers: Sequence[tuple[str, str, int]]
    """Group, topic and its unread messages, most first."""
    delayed: int
    open_transactions: int
    set_aside: int
    in_flight: int
    """Of the unread messages: handed out and not finished."""
    dead_letters: int
    """Dead letters that were neither resent nor dropped."""
    schedules: int
    """Schedules that have not ended."""


class Parts(Protocol):
    """What the reading needs of the broker."""

    store: MessageStore
    folder: OpenedFolder
    guard: Guard
    clock: Clock
    transactions: Transactions
    delays: Delays
    recurring: Recurring
    unread: UnreadCounts


class RemainingReading:
    """The reading of one master."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def read(self, topic: str = "") -> Remaining:
        """Of everything, or only of one topic: then dead letters do not count, which stay where
        they are, and messages in flight or failed count with all others that the groups reading it
        have in their retry topics here, as these do not say where a message came from.

        Raises NotMaster, AerobeeError: what remains cannot be determined now.
        """
        self._parts.guard.check_acting()
        slices = Slices(self._parts.clock)
        rows = await self._parts.unread.read(slices, _is_of_users)
        counted = set[str]()
        if topic:
            groups = {row.group for row in rows if row.topic == topic}
            counted = {topic, *(f"{RETRY_PREFIX}{group}" for group in groups)}
            rows = [row for row in rows if row.topic in counted]
        readers = [(row.group, row.topic, await self._all_unread(row, slices)) for row in rows]
        delayed = sum(
            each.messages
            for each in await self._parts.delays.counts.by_topic()
            if not topic or not each.topic or each.topic in counted
        )
        dead_letters = 0 if topic else sum((await unsettled_letters(self._parts, slices)).values())
        transactions = self._parts.transactions
        # Everything must have been read under one term, or it is worthless.
        self._parts.guard.check_acting()
        if not transactions.ends.is_ready:
            raise Busy("this broker has just become master: ask again in a moment")
        return Remaining(
            readers=sorted((each for each in readers if each[2]), key=lambda each: -each[2]),
            delayed=delayed,
            open_transactions=_of(transactions.pending.by_topic, topic),
            set_aside=_of(transactions.aside.by_topic, topic) if topic else len(transactions.aside),
            in_flight=sum(row.in_flight or 0 for row in rows),
            dead_letters=dead_letters,
            schedules=self._parts.recurring.book.count(topic),
        )

    async def _all_unread(self, row: GroupUnread, slices: Slices) -> int:
        """A group that has members and never committed may want everything."""
        if row.count is not None:
            return row.count
        return await self._parts.unread.stored(row.topic, slices)


def _of(by_topic: Mapping[str, int], topic: str) -> int:
    return by_topic.get(topic, 0) if topic else sum(by_topic.values())


def _is_of_users(group: str, topic: str) -> bool:
    return not is_system_group(group) and not is_system_topic(topic)
