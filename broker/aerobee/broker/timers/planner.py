"""PURE: what to move now, ordered by time, in bounded batches; and when to look again.

The timer queue is moved in *lanes*: intervals of time, each processed from its beginning. There is
one lane while all is on time. When a message is late by more than `late_after_ms`, for example
after an outage or a step of the clock, a second lane begins after the late ones: what falls due is
still moved on time, and what is late follows in time order at a bounded rate. The lanes merge when
the first has reached the second. Only the frontier records them: where its ends rise a lane begins.

Delay levels keep the order of their queues, so each is one lane whose late messages come first.
What a level has ahead (see `LevelWindow`) goes to the timer queue when there is nothing to move:
with the same due time if the level was longer. If the clock was set back, the true store time is
unknown, as store times never fall: the message then waits for the whole delay from now on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from aerobee.broker.timers.entries import TIMER_QUEUE, Floor, IntentKind, Mark, Source
from aerobee.broker.timers.frontier import Frontier, Region
from aerobee.broker.timers.level_window import Due, LevelWindow
from aerobee.broker.timers.pending import FIRST, LAST, NUMBER_MAX, Int64Array, Key, Rows, no_rows
from aerobee.broker.timers.progress import QueueProgress, TimerProgress
from aerobee.runtime.clock import Clock

STEPS_MAX: Final = 16
"""Steps of the frontier. Above this, messages are moved one by one until some steps are gone."""
_STEPS_MANY: Final = 10
"""Above this, a lane continues where it is before it looks for late arrivals."""
_LANES_MAX: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    batch_messages: int = 500
    batch_bytes: int = 1 << 20
    """A single record may exceed it."""
    late_after_ms: int = 2_000
    late_per_s: int = 20_000
    """The maximum rate of late messages. It must exceed what falls due per second, or a delay level
    that is once late would stay late."""
    late_burst: int = 1_000


class TimersByTime(Protocol):
    """What a plan needs of `PendingIndex`."""

    @property
    def fed_end(self) -> int: ...

    @property
    def loaded_until(self) -> Key: ...

    def select(
        self, low: Key, high: Key, *, offset_low: int, offset_end: int, limit: int
    ) -> Rows: ...

    def note_taken(self, count: int) -> None: ...

    def note_exhausted(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What to move, roll or retime now, in this order: columns of equal length. The marks hold once
    all of it is done. Retimed messages wait for their whole delay from now on."""

    queues: Int64Array
    offsets: Int64Array
    due_ms: Int64Array
    positions: Int64Array
    """In the log."""
    sizes: Int64Array
    marks: tuple[Mark, ...]
    basis: TimerProgress
    kind: IntentKind = IntentKind.MOVE

    def __len__(self) -> int:
        return len(self.offsets)

    def sources(self) -> list[Source]:
        columns = (self.queues.tolist(), self.offsets.tolist(), self.due_ms.tolist())
        return list(map(Source, *columns))


@dataclass(slots=True)
class _Lane:
    """What is due in one lane, and how much of it is late."""

    queue: int
    due: Due
    late: int
    region: Region | None = None
    """For the timer queue: the keys examined, and below which offset; its `high` is reached unless
    there was more than the limit."""
    is_cut: bool = False
    top: Key = FIRST
    """For the timer queue: the key that the lane had reached before."""
    taken: int = 0

    def mark(self) -> Mark | None:
        """What is done when the first `taken` messages are."""
        if self.region is None:
            return (
                Floor(self.queue, int(self.due.offsets[self.taken - 1]) + 1) if self.taken else None
            )
        low, high, end = self.region
        reached = low
        if self.taken:
            last = self.taken - 1
            reached = Key(int(self.due.due_ms[last]), int(self.due.offsets[last]))
        if self.taken == len(self.due.offsets) and not self.is_cut:
            # Everything was taken: what the lane had reached before is also done for the new end.
            reached = max(reached, min(self.top, high))
        return Region(low, reached, end) if reached > low else None


class Planner:
    """On the loop; gets the time only from its clock."""

    def __init__(
        self,
        timers: TimersByTime,
        levels: Mapping[int, LevelWindow],
        clock: Clock,
        limits: PlanLimits | None = None,
        *,
        log_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`log_ms`: the newest store time in the log, Unix ms."""
        self._log_ms = log_ms
        self._timers = timers
        self._levels = levels
        self._clock = clock
        self._limits = limits or PlanLimits()
        self._late_allowed = float(self._limits.late_burst)
        self._late_s = clock.monotonic_s()

    def plan(self, progress: TimerProgress) -> Plan | None:
        """The next batch; None if nothing is due, or what is due is late and must wait because of
        the rate limit: see `wake_ms`."""
        now_ms = self._clock.now_ms()
        moves = self._moves(progress, now_ms)
        return self._rolls(progress, now_ms) if moves is None else moves

    def _moves(self, progress: TimerProgress, now_ms: int) -> Plan | None:
        lanes = self._timer_lanes(progress.of(TIMER_QUEUE), now_ms)
        for number, window in self._levels.items():
            due = window.due(now_ms, progress.of(number), self._limits.batch_messages)
            if len(due.offsets):
                lanes.append(_Lane(number, due, self._late_count(due, now_ms)))
        if not any(len(lane.due.offsets) for lane in lanes):
            return None
        counts = [len(lane.due.offsets) for lane in lanes]
        queues = np.repeat([lane.queue for lane in lanes], counts)
        due = Due(
            *(
                np.concatenate(columns)
                for columns in zip(*(lane.due for lane in lanes), strict=True)
            )
        )
        order = self._choose(lanes, due)
        if not len(order):
            return None
        marks = self._marks(lanes, progress.of(TIMER_QUEUE).frontier)
        self._timers.note_taken(len(order))
        chosen = Due(*(column[order] for column in due))
        return Plan(queues[order], *chosen, marks, progress)

    def wake_ms(self, progress: TimerProgress) -> int | None:
        """The clock time at which something may be due next, after `plan` returned nothing; None:
        nothing waits. Look again when more is fed or loaded, and when the clock was set."""
        now_ms = self._clock.now_ms()
        found = [
            due_ms
            for number, window in self._levels.items()
            if (due_ms := window.next_due_ms(now_ms, progress.of(number))) is not None
        ]
        timers = progress.of(TIMER_QUEUE)
        for region in timers.frontier.regions():
            rows = self._pending(timers, region._replace(end=self._timers.fed_end), region.end, 1)
            if len(rows):
                found.append(int(rows["due_ms"][0]))
        if self._timers.loaded_until < LAST:
            found.append(self._timers.loaded_until.due_ms)
        if not found:
            return None
        # What is already due must wait because of the rate limit.
        return max(min(found), now_ms + 1 + int(1_000 / self._limits.late_per_s))

    def overdue(self, progress: TimerProgress, limit: int) -> tuple[int, int | None]:
        """How many messages are due and not moved, counted up to about `limit`, and the due time of
        the first of them; None: there are none."""
        now_ms = self._clock.now_ms()
        timers, now = progress.of(TIMER_QUEUE), Key(now_ms, NUMBER_MAX)
        times: list[int] = []
        for region in timers.frontier.regions():
            if len(times) < limit and region.low < now:
                looked_at = region._replace(high=min(region.high, now), end=self._timers.fed_end)
                rows = self._pending(timers, looked_at, region.end, limit - len(times))
                times += rows["due_ms"].tolist()
        for number, window in self._levels.items():
            if len(times) < limit:
                due = window.due(now_ms, progress.of(number), limit - len(times))
                times += due.due_ms.tolist()
        return len(times), min(times, default=None)

    def _rolls(self, progress: TimerProgress, now_ms: int) -> Plan | None:
        """What one level has ahead."""
        limits = self._limits
        for level, window in self._levels.items():
            ahead = window.ahead(now_ms, progress.of(level), limits.batch_messages)
            if len(ahead.offsets):
                chosen = _within(np.arange(len(ahead.offsets)), ahead.sizes, limits.batch_bytes)
                ahead = Due(*(column[chosen] for column in ahead))
                marks = (Floor(level, int(ahead.offsets[-1]) + 1),)
                queues = np.full(len(chosen), level)
                is_set_back = self._log_ms() > now_ms
                kind = IntentKind.RETIME if is_set_back else IntentKind.ROLL
                return Plan(queues, *ahead, marks, progress, kind)
        return None

    # ------------------------------------------------------------------------------ lanes

    def _timer_lanes(self, timers: QueueProgress, now_ms: int) -> list[_Lane]:
        now = min(Key(now_ms, NUMBER_MAX), self._timers.loaded_until)
        lanes = []
        for regions in self._split(timers, now_ms):
            if regions[0].low >= min(regions[-1].high, now):
                continue
            # From its beginning, for late arrivals; unless that would keep adding steps: then what
            # was begun is finished first.
            lane = None
            if len(timers.frontier.steps) >= _STEPS_MANY and regions[0].end:
                lane = self._lane(timers, regions, regions[0].end, now)
            if lane is None or not len(lane.due.offsets):
                lane = self._lane(timers, regions, self._timers.fed_end, now)
            lane.late = self._late_count(lane.due, now_ms)
            lanes.append(lane)
        if now.due_ms < now_ms and not any(len(lane.due.offsets) for lane in lanes):
            self._timers.note_exhausted()
        return lanes

    def _lane(self, timers: QueueProgress, regions: Sequence[Region], end: int, now: Key) -> _Lane:
        """What is due in some regions up to `now`, at offsets below `end`."""
        low, high = regions[0].low, min(regions[-1].high, now)
        limit = self._limits.batch_messages
        parts, count = [no_rows()], 0
        for region in regions:
            if count < limit and region.low < high:
                looked_at = Region(region.low, min(region.high, high), end)
                parts.append(self._pending(timers, looked_at, region.end, limit - count))
                count += len(parts[-1])
        rows = np.concatenate(parts)
        due = Due(rows["offset"], rows["due_ms"], rows["position"], rows["size"])
        # Before another lane everything may count as reached.
        is_last = regions[-1].high == LAST
        tops = [region.high for region in regions if region.end or not is_last]
        top = max(tops, default=FIRST)
        return _Lane(TIMER_QUEUE, due, 0, Region(low, high, end), count >= limit, top)

    def _split(self, timers: QueueProgress, now_ms: int) -> list[list[Region]]:
        """The regions of each lane."""
        lanes: list[list[Region]] = []
        before = -1
        for region in timers.frontier.regions():
            if not lanes or (region.end > before and before >= 0):
                lanes.append([])
            lanes[-1].append(region)
            before = region.end
        if len(lanes) == _LANES_MAX or len(timers.frontier.steps) >= _STEPS_MANY:
            return lanes
        split = Key(now_ms - self._limits.late_after_ms, NUMBER_MAX)
        late = [
            region._replace(high=min(region.high, split))
            for region in lanes[-1]
            if region.low < split
        ]
        end = self._timers.fed_end
        if any(len(self._pending(timers, each._replace(end=end), each.end, 1)) for each in late):
            in_time = [
                region._replace(low=max(region.low, split))
                for region in lanes[-1]
                if region.high > split
            ]
            lanes[-1:] = [late, in_time]
        return lanes

    def _pending(self, timers: QueueProgress, region: Region, done_end: int, limit: int) -> Rows:
        """What waits in a region below its end; everything below `done_end` is done."""
        low, found, count = region.low, [no_rows()], 0
        while count < limit:
            rows = self._timers.select(
                low,
                region.high,
                offset_low=max(done_end, timers.floor),
                offset_end=region.end,
                limit=limit,
            )
            is_last = len(rows) < limit
            if len(rows):
                low = Key(int(rows["due_ms"][-1]), int(rows["offset"][-1]))
                rows = rows[_waiting(timers, rows)][: limit - count]
            found.append(rows)
            count += len(rows)
            if is_last:
                break
        return np.concatenate(found)

    def _late_count(self, due: Due, now_ms: int) -> int:
        return int(np.searchsorted(due.due_ms, now_ms - self._limits.late_after_ms))

    # ------------------------------------------------------------------------------ choosing

    def _choose(self, lanes: Sequence[_Lane], due: Due) -> Int64Array:
        """Which of the lanes' messages, `due`, are moved, in order; sets how many each lane gives.
        Punctual messages leave a quarter of the batch to late ones, and take the rest."""
        limits = self._limits
        counts = [len(lane.due.offsets) for lane in lanes]
        lane_of = np.repeat(np.arange(len(lanes)), counts)
        is_late = np.concatenate(
            [np.arange(count) < lane.late for count, lane in zip(counts, lanes, strict=True)]
        )
        order = np.argsort(due.due_ms, kind="stable")
        late, in_time = order[is_late[order]], order[~is_late[order]]
        kept = min(len(in_time), limits.batch_messages * 3 // 4)
        late = late[: min(self._late_rate(), limits.batch_messages - kept)]
        late = _within(late, due.sizes, limits.batch_bytes // (4 if len(in_time) else 1))
        taken = np.bincount(lane_of[late], minlength=len(lanes))
        # While a lane has late messages nothing else of it may go first.
        is_clear = taken == [lane.late for lane in lanes]
        in_time = in_time[is_clear[lane_of[in_time]]][: limits.batch_messages - len(late)]
        bytes_left = limits.batch_bytes - int(due.sizes[late].sum())
        in_time = _within(in_time, due.sizes, bytes_left) if bytes_left > 0 else in_time[:0]
        taken += np.bincount(lane_of[in_time], minlength=len(lanes))
        for lane, count in zip(lanes, taken.tolist(), strict=True):
            lane.taken = count
        self._late_allowed -= len(late)
        return np.concatenate((late, in_time))

    def _late_rate(self) -> int:
        """How many late messages may be moved now."""
        limits, now_s = self._limits, self._clock.monotonic_s()
        grown = self._late_allowed + (now_s - self._late_s) * limits.late_per_s
        self._late_allowed = min(grown, limits.late_burst)
        self._late_s = now_s
        return int(self._late_allowed)

    def _marks(self, lanes: Sequence[_Lane], frontier: Frontier) -> tuple[Mark, ...]:
        """The marks that do not make the frontier too long."""
        marks: list[Mark] = []
        for lane in lanes:
            mark = lane.mark()
            if isinstance(mark, Floor):
                marks.append(mark)
            elif mark is not None:
                raised = frontier.raised(*mark)
                if len(raised.steps) <= max(STEPS_MAX, len(frontier.steps)):
                    frontier = raised
                    marks.append(mark)
        return tuple(marks)


def _waiting(timers: QueueProgress, rows: Rows) -> list[bool]:
    if not timers.loose:
        return [True] * len(rows)
    return [offset not in timers.loose for offset in rows["offset"].tolist()]


def _within(chosen: Int64Array, sizes: Int64Array, bytes_max: int) -> Int64Array:
    """As many as have this total size; at least one if there are any."""
    count = int(np.searchsorted(np.cumsum(sizes[chosen]), bytes_max, side="right"))
    return chosen[: max(count, 1)]
