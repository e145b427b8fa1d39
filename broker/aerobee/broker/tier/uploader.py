"""A master's uploads: every full segment of the log that is confirmed and on the disk.

Owns: where the chain of manifests ends, as this term knows it. A term begins by looking where the
terms before it came to; then it uploads one segment after the other. The work blocks, so it is done
on a thread of its own, which asks before each chunk whether the term still goes on.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from threading import Event
from typing import Final, Protocol, TypeVar

from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.broker.replication.term_keeper import Stretch, TermKeeper
from aerobee.broker.tier.tier_thread import on_thread
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    AerobeeError,
    NotMaster,
    TierDamaged,
    TierUnavailable,
)
from aerobee.runtime.log import log_event
from aerobee.runtime.worker import Worker, warns
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.names import file_name
from aerobee.store.tier.config import TierConfig
from aerobee.store.tier.manifest import Manifest
from aerobee.store.tier.objects import Objects
from aerobee.store.tier.tables import pack_tables
from aerobee.store.tier.uploads import (
    Upload,
    Writer,
    check_agrees,
    check_continues,
    find_manifest,
    local_segment,
    tidy_tier,
    was_forgotten,
)

log = logging.getLogger(__name__)

RETRY_S: Final = 10.0

T = TypeVar("T")


class Epochs(Protocol):
    """The part of the roles that is needed here."""

    history: EpochHistory


class Uploader:
    """On the loop, while `run` runs."""

    def __init__(
        self,
        objects: Objects,
        disk: Disk,
        store: MessageStore,
        roles: Epochs,
        clock: Clock,
        chance: random.Random,
        config: TierConfig,
        thread: Executor,
        *,
        segment_bytes: int,
    ) -> None:
        self._objects = objects
        self._disk = disk
        self._store = store
        self._roles = roles
        self._clock = clock
        self._chance = chance
        self._config = config
        self._thread = thread
        self._segment_bytes = segment_bytes
        self._keeper: TermKeeper[MasterTerm] = TermKeeper()
        self._ended = Event()
        self._writer = Writer(0, "")
        self._last: Manifest | None = None
        self._next_base: int | None = None
        self.uploaded_segments = 0
        self.uploaded_bytes = 0
        self.failures = 0
        self._is_working = False
        self._worker = Worker(self._work, self._tell, retry_s=RETRY_S, retries_when_woken=True)
        self._warn = warns(log, "a segment cannot be uploaded to the tier", tier=objects)

    # ------------------------------------------------------------------------------ the term

    def begin(self, term: MasterTerm) -> None:
        self._resumed(self._keeper.begin(term))

    async def leave(self) -> None:
        self._break()
        self._keeper.leave()

    def resume(self) -> None:
        self._resumed(self._keeper.resume())

    def end(self) -> None:
        self._break()
        self._keeper.end()

    def _resumed(self, stretch: Stretch[MasterTerm] | None) -> None:
        if stretch is None:
            return
        self._ended = Event()
        self._writer = Writer(stretch.term.epoch, f"{self._chance.getrandbits(64):016x}")
        self._last, self._next_base = None, None
        self._worker.wake()

    def _break(self) -> None:
        self._ended.set()
        self._last, self._next_base = None, None

    # ------------------------------------------------------------------------------ the state

    def look(self, _flushed_end: int = 0) -> None:
        """More may be confirmed, or on the disk."""
        next_base = self._next_base
        if next_base is None or self._worker.is_backing_off:
            return
        if self._safe_end >= next_base + self._segment_bytes:
            self._worker.wake()

    def wake(self) -> None:
        """Something that failed may work now."""
        self._worker.wake()

    @property
    def _safe_end(self) -> int:
        """What is below cannot be lost by a change of master, nor by a power failure."""
        return min(self._store.confirmed_end, self._store.flushed_end)

    @property
    def is_resting(self) -> bool:
        """It waits: for a segment, or before it tries again."""
        return not self._is_working and not self._worker.is_woken

    @property
    def waiting_segments(self) -> int | None:
        """Full segments that are not known to be in the tier; None: this is no master, or it has
        not found the end of the chain yet."""
        next_base = self._next_base
        if next_base is None:
            return None
        return sum(1 for base, _ in self._full_segments() if base >= next_base)

    # ------------------------------------------------------------------------------ the work

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        try:
            await self._worker.run()
        finally:
            self._break()

    async def _work(self) -> float | None:
        self._is_working = True
        try:
            await self._upload_all()
        finally:
            self._is_working = False
        return None

    async def _upload_all(self) -> None:
        """What is due, from the chain's end on."""
        stretch = self._keeper.stretch
        if stretch is None:
            return
        if self._next_base is None:
            await self._tidy(stretch)
            await self._find_end(stretch)
        while (due := next(iter(self._due()), None)) is not None:
            await self._upload(stretch, *due)

    def _full_segments(self) -> list[tuple[int, int]]:
        """Bases and ends."""
        segments = self._store.log.segments()[:-1]
        return [(each.base, each.base + each.wrote_position) for each in segments]

    def _due(self) -> list[tuple[int, int]]:
        """Full segments that no master can lose any more, and that are not in the tier."""
        next_base = self._next_base
        assert next_base is not None
        return [
            (base, end)
            for base, end in self._full_segments()
            if base >= next_base and end <= self._safe_end
        ]

    async def _find_end(self, stretch: Stretch[MasterTerm]) -> None:
        """Follows the chain from the log's beginning to where it ends. Only what is certainly not
        there is uploaded."""
        epochs = self._roles.history.entries
        segments = self._full_segments()
        last: Manifest | None = None
        first = self._store.min_offset
        if first:
            before = first - self._segment_bytes
            last = await self._on_thread(partial(find_manifest, self._objects, before))
            stretch.check()
            if last is not None:
                check_continues(last, first, epochs)
        next_base = first
        for base, end in segments:
            found = await self._on_thread(partial(find_manifest, self._objects, base))
            stretch.check()
            if found is None:
                if await self._on_thread(partial(was_forgotten, self._objects, base)):
                    stretch.check()
                    last, next_base = None, end
                    continue
                stretch.check()
                break
            local = await self._on_thread(partial(local_segment, self._disk, base, end, epochs))
            stretch.check()
            check_agrees(found, local)
            last, next_base = found, end
        self._last, self._next_base = last, next_base

    async def _tidy(self, stretch: Stretch[MasterTerm]) -> None:
        """Once a term."""
        removed = await self._on_thread(partial(tidy_tier, self._objects))
        stretch.check()
        if removed:
            log_event(log, "left-overs of interrupted uploads removed from the tier", count=removed)

    async def _upload(self, stretch: Stretch[MasterTerm], base: int, end: int) -> None:
        epochs = self._roles.history.entries
        began_s = self._clock.monotonic_s()
        pace = _Pace(self._clock, self._config.bytes_per_s, self._ended)
        previous = self._last if self._last is not None and self._last.end == base else None

        def upload() -> tuple[Upload, Manifest]:
            work = Upload(
                self._objects,
                self._disk,
                local_segment(self._disk, base, end, epochs),
                previous,
                self._writer,
                tables=pack_tables(self._disk),
                written_ms=_modified_ms(self._disk, base),
                now_ms=self._clock.now_ms(),
                on_chunk=pace.wait,
            )
            return work, work.run()

        work, manifest = await self._on_thread(upload)
        stretch.check()
        self._last, self._next_base = manifest, end
        if work.uploaded_bytes:
            self.uploaded_segments += 1
            self.uploaded_bytes += work.uploaded_bytes
            log_event(
                log,
                "log segment uploaded to the tier",
                segment=file_name(base),
                bytes=work.uploaded_bytes,
                seconds=f"{self._clock.monotonic_s() - began_s:.1f}",
            )

    async def _on_thread(self, work: Callable[[], T]) -> T:
        try:
            return await on_thread(self._thread, work)
        except (TierUnavailable, TierDamaged):
            self.failures += 1
            raise

    def _tell(self, error: AerobeeError) -> None:
        if not isinstance(error, NotMaster):
            self._warn(error)


class _Pace:
    """[the thread] Keeps a rate, and gives up once the term is over."""

    def __init__(self, clock: Clock, bytes_per_s: int, ended: Event) -> None:
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self._ended = ended
        self._next_s = 0.0

    def wait(self, size: int) -> None:
        """Before `size` bytes. Raises NotMaster."""
        now_s = self._clock.monotonic_s()
        due_s = max(self._next_s, now_s)
        if self._bytes_per_s:
            self._next_s = due_s + size / self._bytes_per_s
        if self._ended.wait(due_s - now_s):
            raise NotMaster("this replica's term as master has ended")


def _modified_ms(disk: Disk, base: int) -> int:
    """When the segment's file was last written to; 0: unknown."""
    name = file_name(base)
    entries = disk.list(COMMIT_LOG_DIRECTORY)
    return next((entry.modified_ms for entry in entries if entry.name == name), 0)
