"""What operators and clients do with waiting messages: list them, recall one, deliver it now or at
another time. This is all that an edge needs of delayed messages.

Owns: the order of these steps, and when they count: when a call returns, its effect is confirmed
and on disk. A message is named by its recall handle; only messages that wait for a time have one,
those of a delay level are listed without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from aerobee.broker.delayed.finder import Finder, Found
from aerobee.broker.delayed.mover import Mover
from aerobee.broker.journal.journal import Journal
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.durable_changes import confirmed_and_flushed, in_time
from aerobee.broker.sending.guard import Guard
from aerobee.broker.timers.entries import TIMER_QUEUE, IntentKind, TimerEntry
from aerobee.broker.timers.term import TimerTerm
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    InvalidArgument,
    MessageNotFound,
    NotMaster,
)
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.delay_levels import DELAY_MAX_MS
from aerobee.store.format.delayed_records import NotDelayed, destination
from aerobee.store.format.message_content import content_of
from aerobee.store.format.recall_handle import RecallHandle, RecallHandleIllegal
from aerobee.store.format.record_view import Record

ADVICE: Final = "check whether the message is still listed"
LIST_MAX: Final = 1_000
TIME_END_MS: Final = (1 << 62) - 1


class Place(NamedTuple):
    """A message's place in a list; lists are in this order."""

    deliver_ms: int
    queue: int
    offset: int

    def text(self) -> str:
        return ".".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Place:
        """Raises InvalidArgument."""
        parts = text.split(".")
        if len(parts) != 3 or not all(part.isdecimal() and len(part) < 20 for part in parts):
            raise InvalidArgument(
                f"{text[:40]!r} is not a page of a list of delayed messages: pass the value that "
                "came with the previous page, or nothing for the first page"
            )
        return cls(*map(int, parts))


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A waiting message."""

    topic: str
    queue_id: int
    """Where it will be delivered."""
    deliver_ms: int
    """Delivery time, Unix ms."""
    level: int
    """Its delay level; 0: it waits for a time."""
    handle: str
    """For `recall`, `deliver_now` and `retime`; empty for a message of a level or without a unique
    key."""
    unique_key: str
    keys: tuple[str, ...]
    tag: str
    body_bytes: int
    born_ms: int
    stored_ms: int


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """In order of time. `after`: where the next page starts; empty: there is none."""

    messages: tuple[Scheduled, ...]
    after: str


class Schedule:
    """On the loop."""

    def __init__(
        self,
        finder: Finder,
        mover: Mover,
        journal: Journal[TimerEntry, TimerTerm],
        guard: Guard,
        store: MessageStore,
        durability: Durability,
        clock: Clock,
    ) -> None:
        self._finder = finder
        self._mover = mover
        self._journal = journal
        self._guard = guard
        self._store = store
        self._durability = durability
        self._clock = clock

    # ------------------------------------------------------------------------------ listing

    async def search(
        self,
        topic: str = "",
        *,
        begin_ms: int = 0,
        end_ms: int = 0,
        key: str = "",
        after: str = "",
        limit: int = 100,
    ) -> SchedulePage:
        """Waiting messages of a topic (empty: any), to be delivered in [begin_ms, end_ms) (0: no
        end), with this key or unique key (empty: any). A page has at most `limit` and LIST_MAX
        messages, and may have fewer although more follow. A slave lists those it knows of.

        Raises:
            InvalidArgument: `after` is not from a page, or the times are the wrong way round.
            ReplicaBehind: this replica does not know all of it yet.
            ShuttingDown, StoreFailed, Busy; AerobeeError: the disk cannot be read.
        """
        self._guard.check_available()
        self._journal.check_known()
        end_ms = end_ms or TIME_END_MS
        if begin_ms >= end_ms:
            raise InvalidArgument(f"the start {begin_ms} is not before the end {end_ms}: swap them")
        low = Place(max(begin_ms - 1, 0), TIME_END_MS, TIME_END_MS)
        if after:
            low = max(low, Place.parse(after))
        limit = min(max(limit, 1), LIST_MAX)
        found, until = await self._finder.waiting(low, end_ms, topic=topic, limit=limit, key=key)
        messages = [self._described(each) for each in found]
        return SchedulePage(
            tuple(message for message in messages if message is not None),
            "" if until is None else Place(*until).text(),
        )

    def _described(self, found: Found) -> Scheduled | None:
        record, source = found.record, found.source
        try:
            topic, queue_id = destination(record)
        except NotDelayed:
            return None
        unique_key = record.unique_key or ""
        is_named = source.queue == TIMER_QUEUE and unique_key
        return Scheduled(
            topic=topic,
            queue_id=queue_id,
            deliver_ms=source.due_ms,
            level=source.queue,
            handle=self._handle_of(record, source.due_ms) if is_named else "",
            unique_key=unique_key,
            keys=record.keys,
            tag=record.tag or "",
            body_bytes=record.body_size,
            born_ms=record.born_timestamp_ms,
            stored_ms=record.store_timestamp_ms,
        )

    def _handle_of(self, record: Record, deliver_ms: int) -> str:
        topic, unique_key = record.property_value("REAL_TOPIC") or "", record.unique_key or ""
        try:
            handle = RecallHandle(
                topic, self._guard.broker_name, deliver_ms, unique_key, content_of(record)
            )
            return handle.encode()
        except RecallHandleIllegal:
            return ""  # a unique key that none of our clients assigns

    # ------------------------------------------------------------------------------ acting

    async def recall(self, handle: str) -> None:
        """The message will not be delivered.

        Raises:
            InvalidArgument: not a handle, or another broker's.
            MessageNotFound: no such message waits: it was delivered or recalled.
            NotMaster, ReplicaBehind: ask the master, or retry in a moment; nothing was done, or, if
                the term ended meanwhile, it may have been.
            Busy: too many messages were recalled or postponed before their time.
            DeadlineExceeded: it may still take effect.
            ShuttingDown, StoreFailed; AerobeeError: the disk cannot be read.
        """
        self._check_acting()
        found = await self._named(handle)
        term = self._journal.writer()
        written = term.remove([each.source for each in found], "recalled")
        await in_time(asyncio.shield(written), ADVICE)

    async def deliver_now(self, handle: str) -> None:
        """Deliver it at once. Raises as `recall`, and NotWritable."""
        self._check_acting()
        await self._act(IntentKind.MOVE, await self._named(handle))

    async def retime(self, handle: str, deliver_ms: int) -> str:
        """Deliver it at another time, Unix ms. Returns its handle from now on.

        Raises as `recall`; also InvalidArgument: the time is too far away; NotWritable.
        """
        self._check_acting()
        latest_ms = self._clock.now_ms() + DELAY_MAX_MS
        if not 0 < deliver_ms <= latest_ms:
            raise InvalidArgument(
                f"{deliver_ms} is not a time at which a message can be delivered: choose one "
                f"before {latest_ms}"
            )
        found = await self._named(handle)
        await self._act(IntentKind.RETIME, found, new_due_ms=deliver_ms)
        return self._handle_of(found[0].record, deliver_ms)

    def _check_acting(self) -> None:
        self._guard.check_acting()
        self._journal.writer()
        if not self._mover.is_ready:
            raise NotMaster("this replica does not deliver messages yet; try again in a moment")

    async def _named(self, handle: str) -> list[Found]:
        try:
            name = RecallHandle.decode(handle)
        except RecallHandleIllegal as error:
            raise InvalidArgument(str(error)) from None
        if name.broker_name != self._guard.broker_name:
            raise InvalidArgument(
                f"the message waits at broker {name.broker_name}, and this is "
                f"{self._guard.broker_name}: ask {name.broker_name}"
            )
        await self._finder.until_fed()
        found = await self._finder.named(name.topic, name.unique_key, name.deliver_ms)
        contents = {content_of(each.record): each for each in found}
        if not name.content and len(contents) > 1:
            raise InvalidArgument(
                f"{len(contents)} different messages for topic {name.topic} have the id "
                f"{name.unique_key} and wait for this time: take the handle of one of them from "
                "the list of waiting messages"
            )
        if name.content:
            found = [each for each in found if content_of(each.record) == name.content]
        if not found:
            raise _nothing_waits(name)
        return found

    async def _act(self, kind: IntentKind, found: Iterable[Found], *, new_due_ms: int = 0) -> None:
        chosen = [(each.source, each.data) for each in found]
        done = await self._mover.act_out_of_turn(kind, chosen, new_due_ms=new_due_ms)
        if not done:
            raise MessageNotFound("the message has been delivered or recalled meanwhile")
        end = self._store.appended_end
        self._durability.request_flush()
        unsure = "the change was confirmed, so it may or may not count"
        await in_time(confirmed_and_flushed(self._durability, end, unsure), ADVICE)


def _nothing_waits(name: RecallHandle) -> MessageNotFound:
    return MessageNotFound(
        f"no message {name.unique_key} for topic {name.topic} waits here: it was delivered or "
        "recalled, or its time was changed, which gives it another handle"
    )
