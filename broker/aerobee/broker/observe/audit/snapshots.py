"""One reading of all that a broker knows of offsets.

Committed offsets are copied first, then who holds and requests what, then the ends of queues: an
offset is never above the end that is read after it, so a negative lag is not an artefact of the
reading. The copies are complete before the first of them is sent; what needs the disk is looked up
while they are being sent.

Invariant: nothing here changes the broker; no step occupies the loop for more than milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, TypeVar

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.counters import Counters
from aerobee.broker.delayed.counts import WaitingCount
from aerobee.broker.delayed.feature import Delays
from aerobee.broker.groups.current_run import CurrentRun
from aerobee.broker.groups.members import Member
from aerobee.broker.groups.queue_leases import Lease
from aerobee.broker.observe.audit.acknowledged_minutes import AcknowledgedMinutes
from aerobee.broker.observe.audit.copying import Chosen, copy_commits, copy_queues
from aerobee.broker.observe.audit.rows import (
    ROWS_MAX,
    UNKNOWN,
    CommitRows,
    EpochRows,
    LeaseRows,
    MemberRows,
    MinuteRows,
    QueueRows,
    Rows,
    SegmentRows,
    TopicRows,
    WaitingRows,
)
from aerobee.broker.observe.audit.unread import UnreadSurvey
from aerobee.broker.offsets.feature import Progress
from aerobee.broker.opened import OpenedFolder
from aerobee.broker.replication.roles import Roles
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, Busy, DeadlineExceeded
from aerobee.store.engine.message_store import MessageStore

_T = TypeVar("_T")

READINGS_MAX = 4
"""Concurrent readings: each holds a copy of every committed offset until its client read it."""
UNTAKEN_S_MAX = 10.0
"""A reading whose client has not taken a piece for this long gives way to another audit."""


class Table(IntEnum):
    """The tables of a reading, numbered as on the wire."""

    BROKER = 0
    TOPICS = 1
    QUEUES = 2
    COMMITS = 3
    LEASES = 4
    MEMBERS = 5
    EPOCHS = 6
    SEGMENTS = 7
    MINUTES = 8
    WAITING = 9


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested parts of a reading; no table: all."""

    tables: frozenset[int] = frozenset()
    chosen: Chosen = field(default_factory=Chosen)
    first_unread: bool = False
    matching_unread: bool = False

    def has(self, table: Table) -> bool:
        return not self.tables or table in self.tables


@dataclass(slots=True, eq=False)
class Reading:
    """The copies of one reading. Times are the broker's, Unix ms, at the end of each copy."""

    commits_read_at_ms: int = 0
    ends_read_at_ms: int = 0
    topics: list[TopicRows] = field(default_factory=list)
    queues: list[QueueRows] = field(default_factory=list)
    commits: list[CommitRows] = field(default_factory=list)
    leases: list[LeaseRows] = field(default_factory=list)
    members: list[MemberRows] = field(default_factory=list)
    epochs: EpochRows = field(default_factory=EpochRows)
    segments: SegmentRows = field(default_factory=lambda: SegmentRows((), ()))
    minutes: list[MinuteRows] = field(default_factory=list)
    waiting: list[WaitingRows] = field(default_factory=list)
    untaken_since_s: float | None = None
    """Since when its client has a piece to take; None: none is ready."""
    is_dropped: bool = False

    def drop(self) -> None:
        """Free the copies; the code that sends them finds out when its client continues."""
        self.is_dropped = True
        for rows in (self.topics, self.queues, self.commits, self.leases, self.members):
            rows.clear()
        self.minutes.clear()
        self.waiting.clear()


class Parts(Protocol):
    """What snapshots read of the broker."""

    clock: Clock
    folder: OpenedFolder
    store: MessageStore
    reads: ReadPool
    counters: Counters
    roles: Roles
    progress: Progress
    current_run: CurrentRun
    clients: ClientTable
    expressions: CompiledExpressions
    delays: Delays
    minutes: AcknowledgedMinutes


class Snapshots:
    """On the loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._folder = parts.folder
        self._coordinator = parts.progress.coordinator
        self._offsets = parts.progress.offsets
        self._roles = parts.roles
        self._clock = parts.clock
        self._held: list[Reading] = []

    def _make_survey(self) -> UnreadSurvey:
        parts = self._parts
        return UnreadSurvey(
            parts.store,
            parts.current_run.members,
            parts.clients,
            parts.reads,
            parts.expressions,
            parts.counters,
        )

    async def read(self, wanted: Wanted) -> Reading:
        """Copy what is wanted; `pieces` returns it. Call `done` with the result afterwards.

        Raises:
            Busy: too many readings are under way.
        """
        if len(self._held) >= READINGS_MAX:
            self._drop_untaken()
        if len(self._held) >= READINGS_MAX:
            raise Busy(
                f"{READINGS_MAX} audits already read from this broker; try again once one of them "
                "has ended",
                retry_after_ms=1_000,
            )
        reading = Reading()
        self._held.append(reading)
        try:
            await self._copy(reading, wanted)
        except BaseException:
            self.done(reading)
            raise
        reading.untaken_since_s = self._clock.monotonic_s()
        return reading

    def done(self, reading: Reading) -> None:
        """A reading is no longer needed."""
        if reading in self._held:
            self._held.remove(reading)

    def _drop_untaken(self) -> None:
        """Replace readings whose clients seem to be stuck."""
        latest_s = self._clock.monotonic_s() - UNTAKEN_S_MAX
        for reading in [*self._held]:
            if reading.untaken_since_s is not None and reading.untaken_since_s <= latest_s:
                self._held.remove(reading)
                reading.drop()

    async def _copy(self, reading: Reading, wanted: Wanted) -> None:
        await self._offsets.begun()
        folder, chosen = self._folder, wanted.chosen
        if wanted.has(Table.COMMITS):
            reading.commits = await copy_commits(folder.offsets, chosen)
        reading.commits_read_at_ms = self._clock.now_ms()
        # In one step, so that every lease holder here is also a member there.
        held = self._coordinator.ownership.leases.all_held()
        present = list(self._coordinator.members.all_members())
        if wanted.has(Table.LEASES):
            reading.leases = await self._leases(held, chosen)
        if wanted.has(Table.MEMBERS):
            reading.members = await self._members(present, chosen)
        if wanted.has(Table.QUEUES):
            reading.queues = await copy_queues(folder.topics, folder.store, chosen)
        reading.ends_read_at_ms = self._clock.now_ms()
        if wanted.has(Table.TOPICS):
            reading.topics = [
                TopicRows(part)
                for part in _parts(
                    [each for each in folder.topics.configs() if chosen.has_topic(each.name)]
                )
            ]
        if wanted.has(Table.EPOCHS):
            reading.epochs = EpochRows(self._roles.log_state().epochs.entries)
        if wanted.has(Table.SEGMENTS):
            segments = folder.store.log.segments()
            reading.segments = SegmentRows(
                [each.base for each in segments], [each.wrote_position for each in segments]
            )
        if wanted.has(Table.MINUTES):
            reading.minutes = await self._counted(chosen)
        if wanted.has(Table.WAITING):
            reading.waiting = await self._counts_of_waiting(chosen)

    async def pieces(self, reading: Reading, wanted: Wanted) -> AsyncGenerator[Rows, None]:
        """The reading's rows, table by table, with what must be read from disk for them.

        Raises:
            DeadlineExceeded: a piece was not taken for so long that another audit took its place.
        """
        reading.untaken_since_s = None
        async with aclosing(self._rows(reading, wanted)) as all_rows:
            async for rows in all_rows:
                reading.untaken_since_s = self._clock.monotonic_s()
                yield rows
                self._check_held(reading)
                reading.untaken_since_s = None
        self._check_held(reading)

    def _check_held(self, reading: Reading) -> None:
        if reading.is_dropped:
            raise DeadlineExceeded(
                f"this audit read nothing for {UNTAKEN_S_MAX:.0f} s, and another one needed "
                "its place; read faster, or start again"
            )

    async def _rows(self, reading: Reading, wanted: Wanted) -> AsyncGenerator[Rows, None]:
        survey = self._make_survey()
        for topics in reading.topics:
            yield topics
        for queues in reading.queues:
            if wanted.first_unread:
                await survey.add_last_store_times(queues)
            yield queues
        for commits in reading.commits:
            if wanted.first_unread:
                await survey.add_first_unread(commits)
            if wanted.matching_unread:
                await survey.add_matching(commits)
            yield commits
        if wanted.first_unread:
            await survey.add_first_store_times(reading.segments)
        others: list[Rows] = [*reading.leases, *reading.members]
        others += [rows for rows in (reading.epochs, reading.segments) if len(rows)]
        others += [*reading.minutes, *reading.waiting]
        for rows in others:
            yield rows

    # ------------------------------------------------------------------------------ inside

    async def _leases(self, held: list[Lease], chosen: Chosen) -> list[LeaseRows]:
        kept = LeaseRows()
        for part in _parts(held):
            kept += [
                lease
                for lease in part
                if chosen.has_group(lease.key.group) and chosen.has_topic(lease.key.topic)
            ]
            await asyncio.sleep(0)
        return [LeaseRows(part) for part in _parts(kept)]

    async def _members(self, present: list[Member], chosen: Chosen) -> list[MemberRows]:
        now_s = self._clock.monotonic_s()
        members = [each for each in present if chosen.has_group(each.group)]
        pieces: list[MemberRows] = []
        for part in _parts(members):
            rows = MemberRows(part)
            rows.now_s = now_s
            pieces.append(rows)
            await asyncio.sleep(0)
        return pieces

    async def _counts_of_waiting(self, chosen: Chosen) -> list[WaitingRows]:
        try:
            counts = await self._parts.delays.counts.by_topic()
        except AerobeeError:
            return [WaitingRows([WaitingCount("", False, UNKNOWN, UNKNOWN)])]
        kept = [each for each in counts if not each.topic or chosen.has_topic(each.topic)]
        return [WaitingRows(part) for part in _parts(kept)]

    async def _counted(self, chosen: Chosen) -> list[MinuteRows]:
        rows = MinuteRows()
        pieces: list[MinuteRows] = []
        for counts in self._parts.minutes.minutes():
            for topic, acknowledged in zip(counts.topics, counts.messages, strict=True):
                if chosen.has_topic(topic):
                    rows.add(topic, counts.minute, acknowledged)
            if rows.is_full:
                pieces.append(rows)
                rows = MinuteRows()
                await asyncio.sleep(0)
        if len(rows) or not pieces:
            pieces.append(rows)
        for piece in pieces:
            piece.first_whole_minute = self._parts.minutes.first_whole_minute
        return pieces


def _parts(rows: list[_T]) -> Iterator[list[_T]]:
    return (rows[start : start + ROWS_MAX] for start in range(0, len(rows), ROWS_MAX))
