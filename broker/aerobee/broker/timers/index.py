"""The waiting messages of the timer queue by time, with bounded memory.

    fed      came from the queue and are in no file yet
    runs     sorted files; together they have everything below `covered_end` that waits
    near     in memory: everything that waits with a key up to `loaded_until`

Every waiting message is fed or in a run; near also holds those that are due next, so that the loop
never waits for the disk. The index is derived: it starts from its manifest, continues from
`fed_end` of the queue, and is rebuilt if any of its files has changed.

What is done is dropped when files are written. That must never be ahead of the journal: the
manifest says which journal records this was based on, and is ignored if the journal or the queue
was cut so that it ends before that.

On the loop. Works are taken with `next_work`, run on threads, and passed to `finish`. At most one
is running, except that a merge, which may take long, runs beside a load for near.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aerobee.broker.timers.index_works import (
    INDEX_FOLDER,
    MANIFEST,
    IndexWork,
    LoadWork,
    Manifest,
    OldestWork,
    RewriteWork,
    SearchWork,
    remove_strays,
)
from aerobee.broker.timers.near_table import NearTable
from aerobee.broker.timers.pending import FIRST, LAST, BoolArray, Key, Rows
from aerobee.broker.timers.progress import DoneView
from aerobee.broker.timers.runs import IndexDamaged, Run, open_run
from aerobee.store.engine.disk import Disk

_MERGED_AT: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLimits:
    """Rows in memory: 40 bytes each."""

    spill_rows: int = 100_000
    """This many new rows become a run."""
    near_rows_max: int = 200_000
    load_rows: int = 50_000
    """Read at once; near is refilled when it has fewer than this."""


class PendingIndex:
    def __init__(
        self, disk: Disk, *, limits: IndexLimits, begin: int, runs: tuple[Run, ...], next_run: int
    ) -> None:
        """See `open_index`."""
        self._disk = disk
        self._limits = limits
        self._runs = runs
        self._next_run = next_run
        self._covered_end = begin
        self._fed: list[Rows] = []
        self._fed_end = begin
        self._near = NearTable()
        self._near_stale = 0
        self._is_exhausted = False
        self._load: LoadWork | None = None
        self._rewrite: RewriteWork | None = None
        self._spilling = False
        """While set nothing is loaded, as that would miss what is moving from fed to a run."""
        self._spilled = 0
        self.loaded_until = FIRST if runs else LAST

    def __repr__(self) -> str:
        return f"PendingIndex(near={len(self._near)}, runs={len(self._runs)}, end={self._fed_end})"

    @property
    def fed_end(self) -> int:
        """The queue offset from which it wants to be fed."""
        return self._fed_end

    @property
    def covered_end(self) -> int:
        """The offset from which a start after a crash would want to be fed."""
        return self._covered_end

    @property
    def rows_in_runs(self) -> int:
        """Some of them may be done."""
        return sum(run.rows for run in self._runs)

    @property
    def rows_in_memory(self) -> int:
        return len(self._near) + sum(len(rows) for rows in self._fed)

    def feed(self, rows: Rows, end: int) -> None:
        """Feed the next messages of the queue, in order; afterwards all below `end` have been fed.
        An offset without a row is not a waiting message."""
        assert end >= self._fed_end, "the queue is fed in its order"
        self._fed_end = end
        if len(rows):
            self._fed.append(rows)
            until = self.loaded_until
            self._remember(rows if until == LAST else _between(rows, FIRST, until))

    def _remember(self, rows: Rows) -> None:
        self._near.add(rows)
        self._near_stale += len(rows)

    def note_taken(self, count: int) -> None:
        """This many of the selected rows will be done: their memory will be reclaimed soon."""
        self._near_stale += count

    def note_exhausted(self) -> None:
        """Nothing waits up to `loaded_until`, and more is wanted."""
        self._is_exhausted = self.loaded_until < LAST

    def select(self, low: Key, high: Key, *, offset_low: int, offset_end: int, limit: int) -> Rows:
        """The first waiting messages, at most `limit`, with keys in (low, high] and offsets in
        [offset_low, offset_end). Keys after `loaded_until` are unknown; messages that are done may
        be included."""
        return self._near.select(
            low,
            min(high, self.loaded_until),
            offset_low=offset_low,
            offset_end=offset_end,
            limit=limit,
        )

    # ------------------------------------------------------------------------------ works

    def next_work(
        self, view: Callable[[], DoneView], journal_offset: int, *, saves: bool = False
    ) -> IndexWork | None:
        """What a thread should do now, if anything. `view`: what is done according to the journal's
        confirmed records below `journal_offset`. `saves`: write what was fed, however little, so
        that a start finds it."""
        if self._load is not None or self._spilling:
            return None
        self._bound_near(view)
        limits = self._limits
        fed = self._fed_end - self._covered_end
        merged = self._mergeable()
        # Full of done rows that the journal does not confirm yet: more would only be cut again.
        is_full = len(self._near) >= limits.near_rows_max
        is_short = len(self._near) < limits.load_rows or self._is_exhausted
        if is_short and not is_full and self.loaded_until < LAST:
            self._is_exhausted = False
            self._load = LoadWork(
                self._disk, view(), self._runs, self.loaded_until, limits.load_rows
            )
            return self._load
        if self._rewrite is not None:
            return None
        if fed >= limits.spill_rows or (saves and fed):
            self._spilling, self._spilled = True, len(self._fed)
            self._rewrite = self._rewriting(view(), journal_offset, (), self._fed_end)
        elif merged:
            self._spilled = 0
            self._rewrite = self._rewriting(view(), journal_offset, merged, self._covered_end)
        return self._rewrite

    def _rewriting(
        self, view: DoneView, journal_offset: int, replaced: tuple[Run, ...], covered_end: int
    ) -> RewriteWork:
        return RewriteWork(
            disk=self._disk,
            view=view,
            journal_offset=journal_offset,
            covered_end=covered_end,
            number=self._next_run,
            runs=self._runs,
            replaced=replaced,
            fed=self._fed[: self._spilled],
        )

    def finish(self, work: IndexWork) -> None:
        """The work has run without an error."""
        self.give_up(work)
        if isinstance(work, LoadWork):
            assert work.result is not None
            self._remember(work.result)
            for rows in self._fed:
                self._remember(_between(rows, work.after, work.until))
            self.loaded_until = work.until
            return
        self._runs = work.result
        self._next_run += 1
        self._covered_end = work.covered_end
        del self._fed[: self._spilled]

    def give_up(self, work: IndexWork) -> None:
        """The work could not be done now: the disk is full, or a merge has removed a file
        meanwhile. The state is as before it."""
        if isinstance(work, LoadWork):
            assert work is self._load, "it is taken back once"
            self._load = None
        else:
            assert work is self._rewrite, "it is taken back once"
            self._rewrite, self._spilling = None, False

    def _bound_near(self, view: Callable[[], DoneView]) -> None:
        near = self._near
        if self._near_stale < self._limits.load_rows and not self._is_exhausted:
            return
        near.drop_done(view())
        last = near.cut(self._limits.near_rows_max)
        if last is not None:
            self.loaded_until = last
        self._near_stale = 0

    def _mergeable(self) -> tuple[Run, ...]:
        """Runs of similar length, once there are many."""
        tiers: dict[int, list[Run]] = {}
        for run in self._runs:
            tier, rows = 0, self._limits.spill_rows
            while run.rows > rows:
                tier, rows = tier + 1, rows * _MERGED_AT
            tiers.setdefault(tier, []).append(run)
            if len(tiers[tier]) >= _MERGED_AT:
                return tuple(tiers[tier])
        return ()

    # ------------------------------------------------------------------------------ looking

    def search(
        self,
        view: DoneView,
        low: Key,
        high: Key,
        *,
        limit: int,
        accepts: Callable[[Rows], BoolArray],
    ) -> SearchWork:
        """Run it on a thread. If it finds damage, call `reset`."""
        return SearchWork(self._disk, view, self._runs, list(self._fed), low, high, limit, accepts)

    def oldest(self, view: DoneView, *, limit: int) -> OldestWork:
        """Run it on a thread. If it finds damage, call `reset`."""
        return OldestWork(self._disk, view, self._runs, list(self._fed), limit)


def open_index(
    disk: Disk, *, begin: int, queue_end: int, journal_end: int, limits: IndexLimits | None = None
) -> PendingIndex:
    """The index from its files, or an empty one that wants to be fed from `begin` on: below that
    nothing waits. `queue_end` and `journal_end` are what the log has now; call it before anything
    is appended. May block.

    Raises OSError: the files could not even be removed.
    """
    limits = limits or IndexLimits()
    try:
        manifest = Manifest.decode(disk.read_file(MANIFEST))
        if manifest.covered_end > queue_end or manifest.journal_offset > journal_end:
            raise IndexDamaged("the log has lost what the index knows")
        runs = tuple(open_run(disk, name, rows) for name, rows in manifest.runs)
        if len({run.name for run in runs}) != len(runs):
            raise IndexDamaged("a run is named twice")
    except (OSError, ValueError, IndexDamaged):
        return reset_index(disk, begin=begin, limits=limits)
    remove_strays(disk, {run.name for run in runs})
    return PendingIndex(
        disk,
        limits=limits,
        begin=max(begin, manifest.covered_end),
        runs=runs,
        next_run=manifest.next_run,
    )


def reset_index(disk: Disk, *, begin: int, limits: IndexLimits) -> PendingIndex:
    """An empty index; none of the old one's files survive. Raises OSError."""
    disk.make_directory(INDEX_FOLDER)
    disk.fsync_directory("")
    if disk.exists(MANIFEST):
        disk.remove(MANIFEST)
        disk.fsync_directory(INDEX_FOLDER)
    remove_strays(disk, set())
    return PendingIndex(disk, limits=limits, begin=begin, runs=(), next_run=0)


def _between(rows: Rows, low: Key, high: Key) -> Rows:
    """Of unordered rows, those with keys in (low, high]."""
    due, offsets = rows["due_ms"], rows["offset"]
    after_low = (due > low.due_ms) | ((due == low.due_ms) & (offsets > low.offset))
    up_to_high = (due < high.due_ms) | ((due == high.due_ms) & (offsets <= high.offset))
    chosen: Rows = rows[after_low & up_to_high]
    return chosen
