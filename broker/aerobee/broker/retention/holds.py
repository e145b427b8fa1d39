"""What keeps old segments: before each removal every owner of old data is asked one question.

    journal  everything that its last image does not repeat
    delays   messages that wait for their time, until they are stored again
    transactions  half messages that wait for their end
    groups   what a group has not read yet

Owns: the question, and how each owner answers it. An owner that can move what it needs to a later
position does so before it answers. What no owner needs may go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aerobee.broker.journal.journal import Journal
from aerobee.broker.retention.unread_readers import UnreadReaders
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.engine.retention.retention_ledger import Candidate, RetentionLedger
from aerobee.store.engine.retention.unread_search import QueueReaders, UnreadQueue, UnreadSearch
from aerobee.store.flush.work_thread import Work

Upkeep = Callable[[Work], Awaitable[None]]
"""Runs a work on the thread that writes the store's derived files."""


@dataclass(frozen=True, slots=True)
class Need:
    """`position`: the lowest log position that an owner still needs; `reason`: why, in words for
    users and operators, with what they can do."""

    position: int
    reason: str
    is_unread: bool = False
    """Only unread messages: a removal commanded with `unread` takes them."""


class Hold(Protocol):
    """An owner of old data. On the loop; one candidate at a time."""

    async def need(self, candidate: Candidate, upkeep: Upkeep) -> Need | None:
        """What it needs of the log, from its oldest position on; None: nothing of the candidate.
        This may take seconds, while the owner moves what it needs to a later position.

        Raises:
            StoreFailed: the disk failed.
        """
        ...

    def changed(self) -> str:
        """Asked right before the removal, with no await between: why the last answer may be
        outdated and must be asked for again; empty: it is still valid."""
        return ""

    def losing(self) -> Sequence[QueueReaders]:
        """Asked right before the removal: who loses unread messages through it, as of now."""
        return ()


class JournalHold(Hold):
    """A journal writes its whole state again; the log may then lose what was written before."""

    def __init__(self, journal: Journal[Any, Any], save: Callable[[], Awaitable[None]]) -> None:
        """`save` writes the journal's snapshot, if the disk has room."""
        self._journal = journal
        self._save = save

    async def need(self, candidate: Candidate, upkeep: Upkeep) -> Need | None:
        why = await self._journal.prepare_removal(candidate.end, self._save)
        return Need(max(0, self._journal.image_position), why) if why else None


class GroupsHold(Hold):
    """Messages that a group has not read, within the ceiling of their topic."""

    def __init__(self, retention: RetentionLedger, readers: UnreadReaders) -> None:
        self._retention = retention
        self._readers = readers
        self._revision = readers.revision
        self._unread: list[QueueReaders] = []
        self._held_by: QueueName | None = None

    async def need(self, candidate: Candidate, upkeep: Upkeep) -> Need | None:
        self._revision = self._readers.revision
        holding = await self._find(candidate, upkeep)
        return None if holding is None else need_of_group(holding)

    async def _find(self, candidate: Candidate, upkeep: Upkeep) -> UnreadQueue | None:
        """The queue that held the log last time is checked first: while its group does not move,
        that is enough."""
        if self._held_by is not None and not candidate.request.unread:
            first = self._retention.take_search(candidate, self._readers.of_queue(*self._held_by))
            if (holding := await self._run(first, upkeep)) is not None:
                return holding
        search = self._retention.take_search(candidate)
        async for readers in self._readers.collect():
            search.add(readers)
        holding = await self._run(search, upkeep)
        self._held_by = None if holding is None else holding.name
        return holding

    async def _run(self, search: UnreadSearch, upkeep: Upkeep) -> UnreadQueue | None:
        await upkeep(search)
        self._unread = search.unread
        return self._retention.finish_search(search)

    def changed(self) -> str:
        if self._revision == self._readers.revision:
            return ""
        return "groups appeared or were reset while their offsets were read"

    def losing(self) -> Sequence[QueueReaders]:
        """With the offsets committed by now."""
        return self._readers.refresh(self._unread)


def need_of_group(holding: UnreadQueue) -> Need:
    """The need for messages that a group has not read."""
    readers = holding.readers
    group = readers.slowest
    return _need_of_unread(
        holding,
        f"group {group} has not read topic {readers.topic} (queue {readers.queue_id} from offset "
        f"{readers.offsets[group]} on), which keeps the log from offset {holding.position} on: let "
        "it read or reset its offsets, or remove them unread with "
        "`aerobee cluster clean --unread`",
    )


def _need_of_unread(holding: UnreadQueue, reason: str) -> Need:
    readers = holding.readers
    if holding.trouble is not None:
        reason = (
            f"{holding.trouble}; it is unknown whether group {readers.slowest} has read queue "
            f"{readers.queue_id} of topic {readers.topic}: repair the store, or remove its "
            "messages anyway with `aerobee cluster clean --unread`"
        )
    return Need(holding.position, reason, is_unread=True)
