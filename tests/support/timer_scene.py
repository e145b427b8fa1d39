"""The core of timers without a broker: a log, the faults of two replicas, and a judge.

The log is a list of records in append order: waiting messages, journal records, moved copies. A
crash or a fail-over between any two steps of the mover may cut what was not confirmed. What the
core knows afterwards follows from the log alone, through the product's own code: state, windows,
index. Time and chance depend only on the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from aerobee.broker.journal.records import ImageEnd, read_body
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
    TimerEntry,
    decode_entry,
)
from aerobee.broker.timers.index import IndexLimits, PendingIndex, open_index, reset_index
from aerobee.broker.timers.level_window import LevelWindow
from aerobee.broker.timers.pending import make_rows, no_rows
from aerobee.broker.timers.planner import PlanLimits, Planner
from aerobee.broker.timers.state import TimerJournalState, file_reader
from aerobee.broker.timers.term import TimerTerm
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import AerobeeError, Busy
from aerobee.store.engine.producers.producer_windows import ProducerWindows
from aerobee.testing.power_failure import draw_fate
from aerobee.testing.simulated_disk import SimulatedDisk
from tests.support.journal_scene import Broken, Crash, Journalled, Log, SceneWriter, Written

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


Entries = list[TimerEntry | ImageEnd]
Record = Waiting | Moved | Journalled


def place_of(record: Record) -> object:
    """The queue of a record."""
    if isinstance(record, Waiting):
        return ("waiting", record.queue)
    return record.destination if isinstance(record, Moved) else "journal"


class TimerScene:
    """One master after another, over one log."""

    def __init__(
        self,
        seed: int,
        *,
        loses_confirmed: bool = False,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.loses_confirmed = loses_confirmed
        self._trace = trace
        self.falls = 0
        self.chance = random.Random(seed)
        self.clock = ManualClock(now_ms=1_000_000)
        self.log: Log[Waiting | Moved] = Log(place_of)
        self.disk = SimulatedDisk()
        self.saved_state: bytes | None = None
        self.full_share = 0.0
        self.crash_share = 0.0
        self._names = 0
        self.acknowledged: dict[int, Waiting] = {}
        self.recalled: dict[int, list[Written]] = {}
        self.earliest_ms: dict[int, int] = {}
        self.stored_ms = 0
        """The newest store time in the log: it never falls."""
        self.set_aside: set[int] = set()
        self.seen: dict[int, int] = {}
        """Name -> position of the copy that consumers have seen."""
        self._seen_end = 0
        self.open()

    # ------------------------------------------------------------------------------ variants

    def journalled(self, entries: list[TimerEntry | ImageEnd]) -> list[TimerEntry | ImageEnd]:
        """The entries that get into the record; a variant may lose some."""
        return entries

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
        log.confirmed = len(log.records)
        self.windows = ProducerWindows()
        offsets: dict[object, int] = {}
        for at, record in enumerate(log.records):
            place = place_of(record)
            offset = offsets.get(place, 0)
            offsets[place] = offset + 1
            if at in log.numbers:
                self._fill_window(record, log.numbers[at], offset)
        journal = [record for record in log.records if isinstance(record, Journalled)]
        self.state = TimerJournalState()
        if self.saved_state is not None:
            try:
                self.state = file_reader(len(journal))(self.saved_state)
            except ValueError:
                self.saved_state = None
        for record in journal[self.state.next_offset :]:
            entries = read_body(record.body, decode_entry)
            self.state.apply(cast("Entries", entries), record.offset)
        self.writer = SceneWriter(self)
        self.term = TimerTerm(self.state, self.writer, self.clock)
        self.writer.term = self.term
        self.index: PendingIndex = open_index(
            self.disk,
            begin=0,
            queue_end=log.end_of(("waiting", TIMER_QUEUE)),
            journal_end=len(journal),
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

    def tell(self, what: str) -> None:
        if self._trace is not None:
            log = self.log
            self._trace(
                f"{self.clock.now_ms()}: {what}; {len(log.records)} records, "
                f"{log.confirmed} confirmed, {len(self.seen)} came"
            )

    def may_crash(self) -> None:
        if self.chance.random() < self.crash_share:
            raise Crash

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
        for name in [name for name in self.acknowledged if name not in self._stored_names()]:
            raise Broken(f"message {name} was confirmed and is gone")
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
        self.seen = {name: at for name, at in self.seen.items() if at < end}
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
        if name in self.seen:
            raise Broken(f"message {name} came twice")
        if copy.at_ms < self.earliest_ms[name]:
            raise Broken(f"message {name} came {self.earliest_ms[name] - copy.at_ms} ms early")
        if self._is_recalled(name):
            raise Broken(f"message {name} came after its recall was confirmed")
        self.seen[name] = at

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
                raise Broken("the clock was not set back, and a level waits for another time")
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

    # ------------------------------------------------------------------------------ judging

    def run(self, steps: int) -> None:
        """Steps with faults, then peace until everything that waits has been delivered."""
        chance = self.chance
        actions = [
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
        self.crash_share, self.full_share = chance.choice((0.0, 0.02, 0.1)), chance.choice((0, 0.1))
        for _ in range(steps):
            try:
                if chance.random() < 0.03:
                    raise Crash
                self.clock.advance_ms(chance.choice((0, 1, 50, 400)))
                if chance.random() < 0.02:
                    self.clock.step_wall_ms(chance.choice((-20_000, -300, 300, 20_000)))
                action = chance.choice(actions)
                action()
                self.tell(action.__name__)
            except Crash:
                self.fall_over()
                self.tell("falls over")
            except AerobeeError as error:
                self.tell(f"is refused: {error}")
            if chance.random() < 0.01:
                self.clock.advance_ms(30_000)  # an outage
        self._end()

    def writer_flush(self) -> None:
        self.writer.flush()

    def _end(self) -> None:
        self.crash_share = self.full_share = 0
        self.tell("peace")
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
            raise Broken("moving does not come to an end")
        for name in self.acknowledged:
            is_excused = self._may_be_recalled(name) or name in self.set_aside
            if name not in self.seen and not is_excused:
                raise Broken(f"message {name} is lost")
        steps = len(self.state.progress.of(TIMER_QUEUE).frontier.steps)
        if steps > 16:
            raise Broken(f"the frontier has {steps} steps")


class LosesRolls(TimerScene):
    """A rolled message is done at its old place, and has no new one."""

    def rolled(self, message: Waiting) -> Waiting | None:
        return None if self.chance.random() < 0.3 else message


class RepeatsMoves(TimerScene):
    """A new master repeats the last intent's acts without checking which of them happened."""

    def standing_acts(self, acts: Sequence[Act], given_up: Iterable[int]) -> list[Act]:
        return list(acts)


class LosesEntries(TimerScene):
    """Sometimes an entry is left out of its record."""

    def journalled(self, entries: list[TimerEntry | ImageEnd]) -> list[TimerEntry | ImageEnd]:
        return [each for each in entries if not self._is_lost(each)]

    def _is_lost(self, entry: TimerEntry | ImageEnd) -> bool:
        return isinstance(entry, Intent) and self.chance.random() < 0.2
