"""A master delivers due messages in bounded batches, and acts on single messages on request.

    what the last master left open is finished -> plan -> read the records -> make the copies
      -> the intent is in the log -> append the copies, each destination's as one batch -> acted

Owns: the order of these steps, and when the next one is due. It wakes when the first waiting
message is due, and when more arrives, is loaded, or is requested. Clocks get adjusted, so it reads
the clock at least every LOOK_S while anything waits.

Invariant: one intent at a time; there is no wait between an intent and its copies, unless an append
failed, and then nothing else is intended before the rest is done. What cannot be appended now,
because the disk is full or the log takes no more, is retried; when the term ends, the next master
finishes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from aerobee.broker.delayed.copies import Copies, Copy, record_of
from aerobee.broker.delayed.finder import Finder
from aerobee.broker.delayed.waiting_log import WaitingLog
from aerobee.broker.sending.durability import Durability
from aerobee.broker.timers.acts import Act, ActsUnknown, all_acts, missing_acts
from aerobee.broker.timers.entries import TIMER_QUEUE, Intent, IntentKind, Source
from aerobee.broker.timers.index import PendingIndex
from aerobee.broker.timers.level_window import LevelWindow
from aerobee.broker.timers.planner import PlanLimits, Planner
from aerobee.broker.timers.progress import TimerProgress
from aerobee.broker.timers.record_rows import REQUEST_DUE_MS
from aerobee.broker.timers.term import TimerTerm
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy, NotMaster
from aerobee.runtime.log import log_event
from aerobee.runtime.waiting import Turns
from aerobee.runtime.worker import Worker, warns
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.record_layout import RecordCorrupt

log = logging.getLogger(__name__)

LOOK_S = 1.0
RETRY_S = 0.25
"""Pause after an append that was not possible."""
OVERDUE_COUNTED_MAX = 10_000
COPIES_PER_STEP = 100
"""Copies made before others get the loop."""


class Fed(Protocol):
    """What the mover needs of `Feeder`."""

    @property
    def index(self) -> PendingIndex: ...

    @property
    def levels(self) -> Mapping[int, LevelWindow]: ...

    def wake(self) -> None: ...


class Mover:
    """On the loop, while `run` runs."""

    def __init__(
        self,
        feeder: Fed,
        waiting: WaitingLog,
        finder: Finder,
        copies: Copies,
        store: MessageStore,
        durability: Durability,
        clock: Clock,
        *,
        limits: PlanLimits | None = None,
        prepare: Callable[[TimerTerm], Awaitable[None]],
        on_moved: Callable[[Sequence[Source], int], None] = lambda sources, now_ms: None,
    ) -> None:
        """`prepare` is called before anything is planned under a term, until it succeeds.
        `on_moved` gets what was delivered on schedule, and when."""
        self._prepare = prepare
        self._prepared: TimerTerm | None = None
        self._feeder = feeder
        self._waiting = waiting
        self._finder = finder
        self._copies = copies
        self._store = store
        self._durability = durability
        self._clock = clock
        self._limits = limits
        self._on_moved = on_moved
        self._worker = Worker(
            self._move,
            warns(log, "delayed messages cannot be delivered now"),
            retry_s=RETRY_S,
            matters=lambda: self._term is not None,
        )
        self._acting = Turns()
        """Held from reading waiting messages until they are done."""
        self._term: TimerTerm | None = None
        self._planner: Planner | None = None
        self._wanted_end = 0
        self._is_fed = False
        """Nothing is planned until everything that waited when this term or index began is fed;
        otherwise overdue messages would not go out ordered by time."""

    def __repr__(self) -> str:
        return f"Mover(term={self._term is not None})"

    # ------------------------------------------------------------------------------ the role

    def begin(self, term: TimerTerm) -> None:
        """Everything in the log is confirmed and applied."""
        self._term = term
        self.use_index()

    def end(self) -> None:
        """Nothing is moved from here on."""
        self._term, self._planner, self._prepared = None, None, None
        self._worker.wake()

    def use_index(self) -> None:
        """Called for a new index or a new term."""
        feeder = self._feeder
        self._wanted_end = self._waiting.bounds(TIMER_QUEUE).max_offset
        self._is_fed = False
        for level, window in feeder.levels.items():
            window.queue_end = max(window.queue_end, self._waiting.bounds(level).max_offset)
        if self._term is not None:
            self._planner = Planner(
                feeder.index,
                feeder.levels,
                self._clock,
                self._limits,
                log_ms=lambda: self._store.log.store_timestamp_ms,
            )
        self._worker.wake()

    def wake(self) -> None:
        """More messages wait or are loaded, or the clock was set."""
        self._worker.wake()

    @property
    def term(self) -> TimerTerm | None:
        """This master's term; None on a slave, and before a master knows everything."""
        return self._term

    @property
    def is_ready(self) -> bool:
        """Whether messages are delivered here."""
        return self._term is not None and self._prepared is self._term

    def overdue(self) -> tuple[int, int | None] | None:
        """See `Planner.overdue`; None where nothing is delivered."""
        if self._planner is None or self._term is None or not self.is_ready:
            return None
        return self._planner.overdue(self._term.progress, OVERDUE_COUNTED_MAX)

    # ------------------------------------------------------------------------------ running

    async def run(self) -> None:
        """Until cancelled.

        Raises:
            StoreFailed: the disk failed.
        """
        await self._worker.run()

    async def _move(self) -> float:
        await self._wait_until(await self._move_all())
        return 0

    async def _wait_until(self, wake_ms: int | None) -> None:
        """Until it is this time, if one is given, the clock was set back, or something wakes it."""
        left_s: float | None = None
        before_ms = self._clock.now_ms()
        while True:
            if wake_ms is not None:
                now_ms = self._clock.now_ms()
                if now_ms >= wake_ms or now_ms < before_ms:
                    return
                before_ms = now_ms
                left_s = min(LOOK_S, (wake_ms - now_ms) / 1_000)
            if await self._worker.rest(left_s):
                return

    async def _move_all(self) -> int | None:
        """Returns when the next message is due, in Unix ms; None: wait until something is fed.
        Raises AerobeeError."""
        while (term := self._term) is not None and self._has_all(term):
            if self._prepared is not term:
                await self._prepare(term)
                self._prepared = term
            async with self._acting:
                has_moved = await self._turn(term)
            self._feeder.wake()
            if not has_moved:
                return self._wake_ms(term)
            if self._durability.is_behind():
                await self._durability.wait_progress()
            await asyncio.sleep(0)  # let others run
        return None

    def _has_all(self, term: TimerTerm) -> bool:
        if not self._is_fed:
            feeder, progress = self._feeder, term.progress
            self._is_fed = feeder.index.fed_end >= self._wanted_end and all(
                window.wants(progress.of(level)) is None for level, window in feeder.levels.items()
            )
            if not self._is_fed:
                feeder.wake()
        return self._is_fed

    def _wake_ms(self, term: TimerTerm) -> int | None:
        if self._planner is None or term is not self._term:
            return None
        return self._planner.wake_ms(term.progress)

    async def _turn(self, term: TimerTerm) -> bool:
        """Moves what is due, or a part of it; False if there was nothing. Raises AerobeeError."""
        if term.progress.open is not None:
            await self._finish(term, term.progress.open)
        if term is not self._term or self._planner is None:
            return False
        plan = self._planner.plan(term.progress)
        if plan is None:
            return False
        sources = plan.sources()
        found = await self._waiting.pieces_there(plan.positions.tolist(), plan.sizes.tolist())
        requests = await self._carry_out_requests(term, sources, found)
        chosen = [each for each in zip(sources, found, strict=True) if each[0] not in requests]
        is_retimed = plan.kind is IntentKind.RETIME
        new_due_ms = self._clock.now_ms() + _longest_delay_ms(chosen) if is_retimed else 0
        copies = await self._make(plan.kind, chosen, new_due_ms)
        if term is not self._term:
            return False
        copies.sort(key=lambda copy: copy.destination)
        intent = term.intend(
            plan.kind,
            [copy.source for copy in copies],
            plan.marks,
            basis=plan.basis,
            new_due_ms=new_due_ms,
        )
        self._act(term, intent, copies)
        if intent.sources and plan.kind is IntentKind.MOVE:
            self._on_moved(intent.sources, self._clock.now_ms())
        return True

    # ------------------------------------------------------------------------------ steps

    async def read_sources(self, sources: Sequence[Source]) -> list[bytes | None]:
        """Their records; None for one that is gone. Raises AerobeeError."""
        positions, sizes = [], []
        for source in sources:
            entry = await self._waiting.entries(source.queue, source.offset, 1)
            is_there = len(entry) > 0
            positions.append(int(entry.positions[0]) if is_there else -1)
            sizes.append(int(entry.sizes[0]) if is_there else 0)
        return await self._waiting.pieces_there(positions, sizes)

    async def _make(
        self,
        kind: IntentKind,
        found: Sequence[tuple[Source, bytes | None]],
        new_due_ms: int = 0,
    ) -> list[Copy]:
        copies: list[Copy] = []
        for number, (source, data) in enumerate(found, 1):
            copies.append(self._copies.make(kind, source, data, new_due_ms))
            if number % COPIES_PER_STEP == 0:
                await asyncio.sleep(0)
        return copies

    def _act(self, term: TimerTerm, intent: Intent, copies: Sequence[Copy]) -> None:
        """Raises AerobeeError: the intent stays open."""
        destination_of = {copy.source: copy.destination for copy in copies}
        acts = all_acts(intent, [destination_of[source] for source in intent.sources])
        self._append(term, acts, copies)

    def _append(self, term: TimerTerm, acts: Sequence[Act], copies: Sequence[Copy]) -> None:
        self._copies.append(acts, copies, term.give_up)
        term.note_acted()

    async def _finish(self, term: TimerTerm, intent: Intent) -> None:
        """Finish an intent that was begun here or by the last master. Raises AerobeeError."""
        data = await self.read_sources(intent.sources)
        found = list(zip(intent.sources, data, strict=True))
        copies = await self._make(intent.kind, found, intent.new_due_ms)
        if term is not self._term or term.progress.open is not intent:
            return
        acts = all_acts(intent, [copy.destination for copy in copies])
        standing = self._store.producers.windows.standing
        given_up = term.progress.given_up
        try:
            missing = missing_acts(acts, given_up, standing)
        except ActsUnknown as error:
            # Better twice than never.
            log_event(
                log,
                "delayed messages may be delivered twice",
                level=logging.ERROR,
                messages=len(acts),
                reason=error,
            )
            missing = [act for act in acts if act.number not in given_up]
        self._append(term, missing, copies)

    async def _carry_out_requests(
        self, term: TimerTerm, sources: Sequence[Source], found: Sequence[bytes | None]
    ) -> set[Source]:
        """Carries out the recall requests among planned sources: the recalled messages count as
        done before any of them could be delivered. Raises AerobeeError."""
        requests: set[Source] = set()
        for source, data in zip(sources, found, strict=True):
            if source.queue != TIMER_QUEUE or source.due_ms != REQUEST_DUE_MS or data is None:
                continue
            try:
                record = record_of(source, data)
            except RecordCorrupt:
                continue
            dropped = [each.source for each in await self._finder.named_by(record)]
            if term is not self._term:
                break
            term.remove_as_requested([source, *dropped], "recalled by a request")
            requests.add(source)
        return requests

    # ------------------------------------------------------------------------------ out of turn

    async def act_out_of_turn(
        self,
        kind: IntentKind,
        found: Sequence[tuple[Source, bytes | None]],
        *,
        new_due_ms: int = 0,
        floor: Source | None = None,
        basis: TimerProgress | None = None,
    ) -> list[Source]:
        """Deliver these messages now, roll them, or change their time. Returns those that were not
        done yet. `floor`: afterwards everything in its queue up to it is done; this was derived
        from `basis`, and is refused with Busy if part of that did not come true.

        Raises:
            NotMaster: nothing was done.
            AerobeeError: nothing was done, or the result is unknown; what was begun will be
            finished.
        """
        async with self._acting:
            term = self._term
            if term is None or self._prepared is not term:
                raise NotMaster("this replica does not deliver messages now; ask the master")
            if term.progress.open is not None:
                await self._finish(term, term.progress.open)
            copies = await self._make(kind, found, new_due_ms)
            if term is not self._term:
                raise NotMaster("this replica's term as master has just ended; ask the master")
            if term.progress.open is not None:
                raise Busy("other messages are being delivered; try again in a moment")
            if kind is not IntentKind.ROLL:
                term.check_out_of_turn(len(copies))
            copies.sort(key=lambda copy: copy.destination)
            intent = term.intend(
                kind,
                [copy.source for copy in copies],
                basis=basis or term.progress,
                new_due_ms=new_due_ms,
            )
            self._act(term, intent, copies)
            if floor is not None:
                term.raise_floor(floor.queue, floor.offset + 1)
        self._worker.wake()
        return list(intent.sources)


def _longest_delay_ms(found: Sequence[tuple[Source, bytes | None]]) -> int:
    """The longest wait of messages of a level, counted from when they were stored."""
    delays_ms = [0]
    for source, data in found:
        if data is not None:
            try:
                delays_ms.append(source.due_ms - record_of(source, data).store_timestamp_ms)
            except RecordCorrupt:
                continue  # it is given up
    return max(delays_ms)
