"""Single messages among those that wait: by name, and by time.

Owns: nothing. The index is searched on a thread, as it may be on disk; its results are compared
with the records, since it holds only hashes of names. Delay levels have no index: their queues are
ordered by time, and entries are scanned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, NamedTuple, Protocol

from aerobee.broker.delayed.copies import record_of
from aerobee.broker.delayed.waiting_log import WaitingLog, in_parts
from aerobee.broker.timers.entries import TIMER_QUEUE, Source
from aerobee.broker.timers.index import PendingIndex
from aerobee.broker.timers.index_works import OldestWork, SearchWork
from aerobee.broker.timers.level_window import LevelWindow
from aerobee.broker.timers.pending import NUMBER_MAX, BoolArray, Key, Rows
from aerobee.broker.timers.progress import TimerProgress
from aerobee.broker.timers.record_rows import REQUEST_DUE_MS, key_hash
from aerobee.broker.timers.runs import IndexDamaged
from aerobee.runtime.errors import AerobeeError, Busy
from aerobee.runtime.log import log_event
from aerobee.runtime.loop_turns import LISTINGS, LoopTurns
from aerobee.runtime.waiting import Turns
from aerobee.store.format.delayed_records import PRECISION_MS, recalls, timer_slot_ms
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.message_content import content_of
from aerobee.store.format.record_layout import RecordCorrupt
from aerobee.store.format.record_view import Record

log = logging.getLogger(__name__)

NAMED_MAX = 1_000
"""At most this many messages of one name are looked at."""
NAMED_BYTES = 4 << 20
"""After this many bytes of records, the rest is left for another call: all of them are held in
memory and appended together."""
LOOKED_AT_MAX = 20_000
"""At most this many records are read for one page of a list."""
READ_AT_ONCE_BYTES = 1 << 20
"""A single message may be larger."""
PAGE_BYTES = 16 << 20
"""A page of a list ends after this many bytes of records."""
LEVEL_ENTRIES_AT_ONCE = 4_096
_ROUNDS_MAX = 10


class Fed(Protocol):
    """What the finder needs of `Feeder`."""

    @property
    def index(self) -> PendingIndex: ...

    @property
    def levels(self) -> Mapping[int, LevelWindow]: ...

    def damaged(self, index: PendingIndex, reason: str) -> None: ...

    async def until_fed(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Found:
    """A waiting message and its record."""

    source: Source
    data: bytes

    @property
    def record(self) -> Record:
        return Record(self.data, 0, len(self.data))


class _Candidate(NamedTuple):
    """In the order of lists."""

    due_ms: int
    queue: int
    offset: int
    position: int
    size: int


class Finder:
    """On the loop."""

    def __init__(
        self,
        feeder: Fed,
        waiting: WaitingLog,
        works: Executor,
        progress: Callable[[], TimerProgress],
        turns: LoopTurns,
        pages: Turns,
    ) -> None:
        """`progress`: what is done so far. `pages`: how many may be put together at a time."""
        self._pages = pages
        self._feeder = feeder
        self._waiting = waiting
        self._works = works
        self._progress = progress
        self._turns = turns

    async def until_fed(self) -> None:
        """Until what was stored before this call can be found. Raises Busy: that takes too long."""
        await self._feeder.until_fed()

    # ------------------------------------------------------------------------------ by name

    async def named_by(self, request: Record) -> list[Found]:
        """The messages that a recall request names: none if they are different messages with one
        id, since it does not say which of them. Raises AerobeeError."""
        name = recalls(request) or ""
        topic = request.property_value("REAL_TOPIC") or ""
        slot = request.property_value("TIMER_OUT_MS") or ""
        # Apache's brokers up to 5.3.1 write the unique key alone.
        unique_key = name.removeprefix(f"{topic}+")
        if not slot.isdigit():
            return []
        found = await self.named(topic, unique_key, int(slot) + 1)
        if len({content_of(each.record) for each in found}) <= 1:
            return found
        log_event(
            log,
            "a request recalls nothing: different messages have this id",
            level=logging.WARNING,
            topic=topic,
            message_id=unique_key,
        )
        return []

    async def named(self, topic: str, unique_key: str, deliver_ms: int) -> list[Found]:
        """Waiting messages of `topic` with this unique key that are due in the timer's slot of
        `deliver_ms`. Raises AerobeeError."""
        slot_ms = timer_slot_ms(deliver_ms)
        wanted = key_hash(topic, unique_key)

        def accepts(rows: Rows) -> BoolArray:
            is_it: BoolArray = rows["key_hash"] == wanted
            return is_it

        rows = await self.search(
            Key(slot_ms, NUMBER_MAX),
            Key(slot_ms + PRECISION_MS, NUMBER_MAX),
            limit=NAMED_MAX,
            accepts=accepts,
        )
        candidates = [_candidate(row) for row in rows]
        found: list[Found] = []
        for some in in_parts(candidates, _size_of, READ_AT_ONCE_BYTES, NAMED_MAX):
            found += [
                each
                for each in await self._read(some)
                if each.record.property_value("REAL_TOPIC") == topic
                and each.record.unique_key == unique_key
            ]
            if sum(len(each.data) for each in found) >= NAMED_BYTES:
                break
        return found

    # ------------------------------------------------------------------------------ by time

    async def waiting(
        self, low: tuple[int, int, int], end_ms: int, *, topic: str, limit: int, key: str
    ) -> tuple[list[Found], tuple[int, int, int] | None]:
        """Waiting messages after the place `low` (due time, queue, offset) and before a time,
        ordered by place; and the place after which to continue, None if there are no more. `topic`
        and `key` empty: any. Raises AerobeeError."""
        async with self._pages:
            return await self._waiting_page(low, end_ms, topic, limit, key)

    async def _waiting_page(
        self, low: tuple[int, int, int], end_ms: int, topic: str, limit: int, key: str
    ) -> tuple[list[Found], tuple[int, int, int] | None]:
        rows, is_all = await self._timers_after(low, end_ms, topic, limit)
        candidates = [_candidate(row) for row in rows]
        reached = candidates[-1].due_ms if candidates and not is_all else end_ms
        for level in self._feeder.levels:
            first, has_all = await self._entries_between(
                level, low, min(end_ms, reached), 4 * limit
            )
            candidates += first
            if not has_all:
                is_all, last = False, first[-1]
                reached = min(reached, last.due_ms)
                candidates = [each for each in candidates if each <= last]
        candidates.sort()
        found: list[Found] = []
        count, size = 0, 0
        for some in in_parts(candidates, _size_of, READ_AT_ONCE_BYTES, limit):
            if count >= LOOKED_AT_MAX or size >= PAGE_BYTES:
                return found, candidates[count - 1][:3]
            for each in await self._read(some):
                if _is_wanted(each.record, topic, key):
                    found.append(each)
                    if len(found) == limit:
                        source = each.source
                        return found, (source.due_ms, source.queue, source.offset)
            count += len(some)
            size += sum(map(_size_of, some))
        return found, None if is_all else candidates[-1][:3]

    async def _timers_after(
        self, low: tuple[int, int, int], end_ms: int, topic: str, limit: int
    ) -> tuple[Rows, bool]:
        wanted = java_string_hash(topic)

        def accepts(rows: Rows) -> BoolArray:
            is_message: BoolArray = rows["due_ms"] > REQUEST_DUE_MS
            return is_message & (rows["topic_hash"] == wanted) if topic else is_message

        due_ms, queue, offset = low
        begin = Key(due_ms, offset if queue == TIMER_QUEUE else NUMBER_MAX)
        count = 4 * limit
        rows = await self.search(begin, Key(end_ms - 1, NUMBER_MAX), limit=count, accepts=accepts)
        return rows, len(rows) < count

    async def _entries_between(
        self, level: int, low: tuple[int, int, int], end_ms: int, limit: int
    ) -> tuple[list[_Candidate], bool]:
        """The first entries of a delay level in list order, and whether these are all. Looks at all
        that wait there, a part in each turn of the loop."""
        progress = self._progress().of(level)
        begin = max(progress.floor, self._waiting.bounds(level).min_offset)
        found: list[_Candidate] = []
        while len(entries := await self._waiting.entries(level, begin, LEVEL_ENTRIES_AT_ONCE)):
            await self._turns.turn(LISTINGS)
            times_ms = entries.times_ms
            (at,) = ((times_ms >= low[0]) & (times_ms < end_ms)).nonzero()
            columns = (times_ms[at], at + begin, entries.positions[at], entries.sizes[at])
            new = (
                _Candidate(due_ms, level, offset, position, size)
                for due_ms, offset, position, size in zip(
                    *(column.tolist() for column in columns), strict=True
                )
            )
            found += [each for each in new if each[:3] > low and each.offset not in progress.loose]
            found = nsmallest(limit, found)
            begin += len(entries)
            if len(found) == limit:
                end_ms = found[-1].due_ms + 1
        return found, len(found) < limit

    # ------------------------------------------------------------------------------ the index

    async def search(
        self, low: Key, high: Key, *, limit: int, accepts: Callable[[Rows], BoolArray]
    ) -> Rows:
        """Waiting rows of the index with keys in (low, high], ordered by time. Raises
        AerobeeError."""

        def work(index: PendingIndex) -> SearchWork:
            view = self._progress().view()
            return index.search(view, low, high, limit=limit, accepts=accepts)

        return await self._run(work)

    async def oldest(self, limit: int) -> Rows:
        """The oldest rows of the index, in queue order. Raises AerobeeError."""
        return await self._run(lambda index: index.oldest(self._progress().view(), limit=limit))

    async def _run(self, make: Callable[[PendingIndex], SearchWork | OldestWork]) -> Rows:
        for _ in range(_ROUNDS_MAX):
            index = self._feeder.index
            work = make(index)
            try:
                await asyncio.get_running_loop().run_in_executor(self._works, work.run)
            except FileNotFoundError:
                continue  # a merge has removed it meanwhile
            except IndexDamaged as error:
                self._feeder.damaged(index, str(error))
                break
            except OSError as error:
                raise AerobeeError(
                    f"the index of delayed messages cannot be read ({error.strerror or error}): "
                    "check the disk"
                ) from error
            assert work.result is not None
            return work.result
        raise Busy("the index of delayed messages is being rebuilt; try again in a moment")

    # ------------------------------------------------------------------------------ records

    async def _read(self, candidates: Sequence[_Candidate]) -> list[Found]:
        """Those that still wait, with their records. Raises AerobeeError."""
        data = await self._waiting.pieces_there(
            [each.position for each in candidates], [each.size for each in candidates]
        )
        await self._turns.turn(LISTINGS)
        progress = self._progress()
        sources = [Source(each.queue, each.offset, each.due_ms) for each in candidates]
        return [
            Found(source, piece)
            for source, piece in zip(sources, data, strict=True)
            if piece is not None and _is_record(source, piece) and not progress.is_done(source)
        ]


def _size_of(candidate: _Candidate) -> int:
    return candidate.size


def _candidate(row: Any) -> _Candidate:
    numbers = (int(row[name]) for name in ("offset", "position", "size"))
    return _Candidate(int(row["due_ms"]), TIMER_QUEUE, *numbers)


def _is_wanted(record: Record, topic: str, key: str) -> bool:
    if topic and record.property_value("REAL_TOPIC") != topic:
        return False
    return not key or key in record.keys or key == record.unique_key


def _is_record(source: Source, data: bytes) -> bool:
    try:
        record_of(source, data)
    except RecordCorrupt:
        return False
    return True
