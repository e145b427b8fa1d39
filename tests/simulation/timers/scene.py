"""The core of timers without a broker: a log, and the faults of two replicas.

The log has waiting messages, journal records and moved copies. What the core knows after a fall
follows through the product's own code: state, windows, index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.timers.acts import (
    Act,
    Destination,
    all_acts,
    missing_acts,
    producer_runs,
)
from aerobee.broker.timers.entries import (
    TIMER_QUEUE,
    Intent,
    IntentKind,
    Source,
    decode_entry,
)
from aerobee.broker.timers.index import IndexLimits, PendingIndex, open_index, reset_index
from aerobee.broker.timers.level_window import LevelWindow
from aerobee.broker.timers.pending import make_rows, no_rows
from aerobee.broker.timers.planner import PlanLimits, Planner
from aerobee.broker.timers.state import TimerJournalState, file_reader
from aerobee.broker.timers.term import TimerTerm
from aerobee.runtime.errors import Busy
from aerobee.store.engine.producers.producer_windows import ProducerWindows
from aerobee.testing.power_failure import draw_fate
from aerobee.testing.simulated_disk import SimulatedDisk
from tests.simulation.journalled import Journalled, JournalScene, SceneWriter, Written
from tests.simulation.judge import Judge, expect

JUDGE = Judge()
LEVELS_MS = {1: 1_000, 2: 5_000, 3: 30_000}
INDEX_LIMITS = IndexLimits(spill_rows=12, near_rows_max=10, load_rows=6)
PLAN_LIMITS = PlanLimits(
    batch_messages=5, batch_bytes=450, late_after_ms=700, late_per_s=40, late_burst=6
)
DESTINATIONS = [Destination("flights", 0), Destination("flights", 1), Destination("gates", 0)]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message stored for later delivery."""

    name: int
    queue: int
    offset: int
    due_ms: int
    destination: Destination
    rolls: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """A copy in its destination topic; `number` of the act."""

    name: int
    destination: Destination
    number: int
    offset: int
    at_ms: int


Record = Waiting | Moved | Journalled


def place_of(record: Record) -> object:
    """The queue of a record."""
    if isinstance(record, Waiting):
        return ("waiting", record.queue)
    return record.destination if isinstance(record, Moved) else "journal"


class TimerScene(JournalScene[Waiting | Moved]):
    """Messages that wait, and what moves them."""

    crash_shares = (0.0, 0.02, 0.1)
    full_shares = (0, 0.1)
    state: TimerJournalState

    def __init__(
        self,
        seed: int,
        *,
        loses_confirmed: bool = False,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(seed, place_of, loses_confirmed=loses_confirmed, trace=trace)
        self.disk = SimulatedDisk()
        self._names = 0
        self.acknowledged: dict[int, Waiting] = {}
        self.recalled: dict[int, list[Written]] = {}
        self.earliest_ms: dict[int, int] = {}
        self.stored_ms = 0
        """The newest store time in the log: it never falls."""
        self.set_aside: set[int] = set()
        self.came: dict[int, int] = {}
        """Name -> position of the copy that consumers have seen."""
        self._seen_end = 0
        self.open()

    # ------------------------------------------------------------------------------ variants

    def standing_acts(self, acts: Sequence[Act], given_up: Iterable[int]) -> list[Act]:
        """What a new master finds missing."""
        return missing_acts(acts, set(given_up), self.windows.standing)

    def rolled(self, message: Waiting) -> Waiting | None:
        """The copy that replaces a rolled message."""
        return message

    # ------------------------------------------------------------------------------ opening

    def open(self) -> None:
        """A process starts, or another replica takes over: everything follows from the log."""
        log = self.log
        self.state = self.recover(TimerJournalState(), file_reader, decode_entry)
        self.windows = ProducerWindows()
        offsets: dict[object, int] = {}
        for at, record in enumerate(log.records):
            place = place_of(record)
            offset = offsets.get(place, 0)
            offsets[place] = offset + 1
            if at in log.numbers:
                self._fill_window(record, log.numbers[at], offset)
        self.writer = SceneWriter(self)
        self.term = TimerTerm(self.state, self.writer, self.clock)
        self.writer.term = self.term
        self.index: PendingIndex = open_index(
            self.disk,
            begin=0,
            queue_end=log.end_of(("waiting", TIMER_QUEUE)),
            journal_end=log.end_of("journal"),
            limits=INDEX_LIMITS,
        )
        self.levels = {
            number: LevelWindow(
                number, delay_ms, begin=min(self.state.progress.of(number).floor, 1 << 60)
            )
            for number, delay_ms in LEVELS_MS.items()
        }
        self.planner = Planner(
            self.index, self.levels, self.clock, PLAN_LIMITS, log_ms=lambda: self.stored_ms
        )
        self.feed()

    def _fill_window(self, record: Record, number: int, offset: int) -> None:
        if isinstance(record, Moved):
            topic, queue_id = record.destination
        else:
            assert isinstance(record, Waiting)
            topic, queue_id = "timers", 0
        runs = list(producer_runs(number, 1))
        self.windows.appended(topic, queue_id, runs, offset, self.clock.now_ms())

    def waiting_in(self, queue: int, begin: int = 0) -> list[tuple[int, Waiting]]:
        """Confirmed ones, with their positions."""
        return [
            (at, record)
            for at, record in enumerate(self.log.records[: self.log.confirmed])
            if isinstance(record, Waiting) and record.queue == queue and record.offset >= begin
        ]

    def feed(self) -> None:
        """Feeds what was confirmed to the index and the levels' windows."""
        found = self.waiting_in(TIMER_QUEUE, self.index.fed_end)
        if found:
            rows = make_rows(
                [record.due_ms for _, record in found],
                [record.offset for _, record in found],
                [at for at, _ in found],
                [100] * len(found),
            )
            self.index.feed(rows, found[-1][1].offset + 1)
        for number, window in self.levels.items():
            members = self.waiting_in(number)
            window.queue_end = max(window.queue_end, len(members))
            begin = window.wants(self.term.progress.of(number))
            if begin is not None:
                rest = members[begin:]
                columns = (
                    [record.due_ms for _, record in rest],
                    [at for at, _ in rest],
                    [100] * len(rest),
                )
                window.feed(begin, *(np.array(column, np.int64) for column in columns))

    # ------------------------------------------------------------------------------ faults

    def fall_over(self) -> None:
        """The process dies, perhaps with its machine, and what was not confirmed may be lost."""
        self.falls += 1
        if self.chance.random() < 0.5:
            promised, end = self.disk.sequence_range
            fate = draw_fate(self.chance, promised=promised, end=end, has_journal=True)
            self.disk = self.disk.after_power_failure(fate)
        if self.loses_confirmed and self.chance.random() < 0.3:
            self._lose_confirmed()
        end = self.chance.randint(self.log.confirmed, len(self.log.records))
        self.log.cut(end)
        JUDGE.keeps_all(self.acknowledged, self._stored_names())
        self.open()

    def _lose_confirmed(self) -> None:
        """What consumers have seen is gone, too: nothing is promised about that. All promises hold
        for what is left."""
        end = self.chance.randint(max(0, self.log.confirmed - 30), self.log.confirmed)
        self.log.cut(end)
        self.log.confirmed, self._seen_end = end, min(end, self._seen_end)
        stored = self._stored_names()
        self.acknowledged = {
            name: message for name, message in self.acknowledged.items() if name in stored
        }
        self.came = {name: at for name, at in self.came.items() if at < end}
        for recall in [each for recalls in self.recalled.values() for each in recalls]:
            recall.is_done = recall.is_done and recall.error is not None

    def _stored_names(self) -> set[int]:
        return {record.name for record in self.log.records if isinstance(record, Waiting)}

    def lose_index(self) -> None:
        self.index = reset_index(self.disk, begin=0, limits=INDEX_LIMITS)
        self.planner = Planner(self.index, self.levels, self.clock, PLAN_LIMITS)
        self.feed()

    # ------------------------------------------------------------------------------ steps

    def store(self) -> None:
        """A producer sends a message."""
        queue = self.chance.choice((TIMER_QUEUE, TIMER_QUEUE, TIMER_QUEUE, *LEVELS_MS))
        now_ms = self.clock.now_ms()
        delay_ms = LEVELS_MS.get(queue) or self.chance.choice((10, 300, 2_000, 9_000, 200_000))
        destination = self.chance.choice(DESTINATIONS)
        offset = self.log.end_of(("waiting", queue))
        self._names += 1
        self.stored_ms = max(self.stored_ms, now_ms)
        due_ms = (self.stored_ms if queue in LEVELS_MS else now_ms) + delay_ms
        message = Waiting(self._names, queue, offset, due_ms, destination)
        self.earliest_ms[message.name] = message.due_ms
        self.log.append(message)

    def confirm(self) -> None:
        """More of the log is confirmed: consumers see it."""
        self.log.confirmed = self.chance.randint(self.log.confirmed, len(self.log.records))
        self.writer.confirm()
        self.feed()
        for at in range(self._seen_end, self.log.confirmed):
            record = self.log.records[at]
            if isinstance(record, Waiting):
                self.acknowledged.setdefault(record.name, record)
            elif isinstance(record, Moved):
                self._see(at, record)
        self._seen_end = self.log.confirmed

    def _see(self, at: int, copy: Moved) -> None:
        name = copy.name
        what = f"message {name}"
        JUDGE.once(self.came, name, what)
        JUDGE.not_early(self.earliest_ms[name] - copy.at_ms, what)
        JUDGE.done_for_good(self._is_recalled(name), what)
        self.came[name] = at

    def _is_recalled(self, name: int) -> bool:
        """Whether a caller has been told so."""
        return any(each.is_done and each.error is None for each in self.recalled.get(name, ()))

    def _may_be_recalled(self, name: int) -> bool:
        return any(each.error is None for each in self.recalled.get(name, ()))

    def save(self) -> None:
        """Saves the file of the confirmed state; a process that dies keeps it."""
        self.saved_state = self.state.snapshot()()

    def work(self) -> None:
        """Run one work of the index; its thread takes no time."""
        work = self.index.next_work(
            self.state.view, self.state.next_offset, saves=self.chance.random() < 0.2
        )
        if work is not None:
            work.run()
            self.index.finish(work)

    def image(self) -> None:
        first = self.log.end_of("journal")
        for entry in list(self.term.image()):
            self.writer.add(entry)
        self.writer.add(ImageEnd(len(self.log.records), first, self.clock.now_ms()))
        self.writer.flush()

    # ------------------------------------------------------------------------------ the mover

    def message_of(self, source: Source) -> Waiting:
        found = self.waiting_in(source.queue, source.offset)
        return found[0][1]

    def settle(self) -> None:
        """Complete the open intent; when a term begins, and after a failed act."""
        intent = self.term.progress.open
        if intent is not None:
            acts = self._acts(intent)
            self._act(intent, self.standing_acts(acts, self.term.progress.given_up))

    def _acts(self, intent: Intent) -> list[Act]:
        is_move = intent.kind is IntentKind.MOVE
        return all_acts(
            intent,
            [
                self.message_of(source).destination if is_move else Destination("timers", 0)
                for source in intent.sources
            ],
        )

    def _act(self, intent: Intent, acts: Sequence[Act]) -> None:
        for act in acts:
            self.may_crash()
            message = self.message_of(act.source)
            if self.chance.random() < self.full_share / 2:
                raise Busy("the disk is full")  # `settle` continues from here
            if self.chance.random() < self.full_share / 10:
                self.term.give_up(act.number, "the record is damaged")
                self.set_aside.add(message.name)
                continue
            record: Record | None
            if intent.kind is IntentKind.MOVE:
                offset = self.log.end_of(act.destination)
                # It was due when that was decided, whatever the clock says now.
                record = Moved(
                    message.name, act.destination, act.number, offset, intent.timestamp_ms
                )
            else:
                offset = self.log.end_of(("waiting", TIMER_QUEUE))
                due_ms = message.due_ms
                if intent.kind is IntentKind.RETIME:
                    due_ms = intent.new_due_ms
                record = self.rolled(
                    Waiting(
                        message.name,
                        TIMER_QUEUE,
                        offset,
                        due_ms,
                        message.destination,
                        message.rolls + 1,
                    )
                )
            if record is not None:
                self.log.append(record, act.number)
                self._fill_window(record, act.number, offset)
        self.may_crash()
        self.term.note_acted()

    def intend(self, kind: IntentKind, sources: Sequence[Source], new_due_ms: int = 0) -> None:
        """Out of order."""
        self.settle()
        self._carry_out(
            self.term.intend(kind, sources, basis=self.term.progress, new_due_ms=new_due_ms)
        )

    def _carry_out(self, intent: Intent) -> None:
        self.may_crash()
        if self.term.progress.open is intent:
            self._act(intent, self._acts(intent))

    def move(self) -> bool:
        """One turn of the mover; returns whether it moved anything."""
        self.settle()
        plan = self.planner.plan(self.term.progress)
        if plan is None:
            return False
        if self.chance.random() < 0.2:
            self.recall()  # arrives while the records are being read
        sources = sorted(plan.sources(), key=lambda each: self.message_of(each).destination)
        new_due_ms = 0
        if plan.kind is IntentKind.RETIME:
            if self.stored_ms <= self.clock.now_ms():
                JUDGE.broken("the clock was not set back, and a level waits for another time")
            new_due_ms = self.clock.now_ms() + LEVELS_MS[sources[0].queue]
            for name in (self.message_of(source).name for source in sources):
                self.earliest_ms[name] = min(self.earliest_ms[name], new_due_ms)
        self._carry_out(
            self.term.intend(
                plan.kind, sources, plan.marks, basis=plan.basis, new_due_ms=new_due_ms
            )
        )
        return True

    def a_pending_one(self) -> Waiting | None:
        pending = [
            message
            for queue in (TIMER_QUEUE, *LEVELS_MS)
            for _, message in self.waiting_in(queue)
            if not self.term.progress.is_done(Source(queue, message.offset, message.due_ms))
        ]
        return self.chance.choice(pending) if pending else None

    def recall(self) -> None:
        message = self.a_pending_one()
        if message is not None:
            source = Source(message.queue, message.offset, message.due_ms)
            done = self.term.remove([source], "recalled")
            self.recalled.setdefault(message.name, []).append(done)

    def deliver_now(self) -> None:
        message = self.a_pending_one()
        if message is not None:
            self.earliest_ms[message.name] = 0
            source = Source(message.queue, message.offset, message.due_ms)
            self.intend(IntentKind.MOVE, [source])

    def change_time(self) -> None:
        message = self.a_pending_one()
        if message is not None:
            new_due_ms = self.clock.now_ms() + self.chance.choice((100, 5_000))
            # No caller was told which of the two times applies until the change is confirmed.
            earliest = min(self.earliest_ms[message.name], new_due_ms)
            self.earliest_ms[message.name] = earliest
            source = Source(message.queue, message.offset, message.due_ms)
            self.intend(IntentKind.RETIME, [source], new_due_ms)

    def roll(self) -> None:
        """The oldest are rolled to the end of the log, and the queue's floor follows."""
        self.settle()
        basis = self.term.progress
        oldest = self.index.oldest(basis.view(), limit=4)
        oldest.run()
        rows = oldest.result if oldest.result is not None else no_rows()
        sources = [
            Source(TIMER_QUEUE, *each)
            for each in zip(rows["offset"].tolist(), rows["due_ms"].tolist(), strict=True)
        ]
        if len(sources) < 4:
            return
        floor = sources[-1].offset + 1
        self.writer.flush()  # happens while they are searched for
        self.settle()
        self._carry_out(self.term.intend(IntentKind.ROLL, sources, basis=basis))
        self.term.raise_floor(TIMER_QUEUE, floor)

    # ------------------------------------------------------------------------------ a life

    def actions(self) -> list[Callable[[], object]]:
        return [
            *[self.store] * 8,
            *[self.confirm] * 6,
            *[self.move] * 6,
            *[self.work] * 3,
            self.recall,
            self.deliver_now,
            self.change_time,
            self.roll,
            self.save,
            self.image,
            self.writer_flush,
            self.lose_index,
        ]

    def let_time_pass(self) -> None:
        chance = self.chance
        self.clock.advance_ms(chance.choice((0, 1, 50, 400)))
        if chance.random() < 0.02:
            self.clock.step_wall_ms(chance.choice((-20_000, -300, 300, 20_000)))

    def end_step(self) -> None:
        if self.chance.random() < 0.01:
            self.clock.advance_ms(30_000)  # an outage

    def seen(self) -> str:
        return f", {len(self.came)} came"

    def writer_flush(self) -> None:
        self.writer.flush()

    def come_to_rest(self) -> None:
        self.clock.advance_ms(400_000)
        for _ in range(2_000):
            self.clock.advance_ms(60)
            is_moving = self.move()
            self.work()
            self.writer.flush()
            self.log.confirmed = len(self.log.records)
            self.confirm()
            if not is_moving and self.planner.wake_ms(self.term.progress) is None:
                break
        else:
            JUDGE.broken("moving does not come to an end")
        owed = [name for name in self.acknowledged if not self._may_be_recalled(name)]
        JUDGE.keeps_all(owed, self.came.keys() | self.set_aside)
        steps = len(self.state.progress.of(TIMER_QUEUE).frontier.steps)
        expect(steps <= 16, f"the frontier has {steps} steps")
