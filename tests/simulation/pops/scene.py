"""The core of POP without a broker: a log, masters that fall, and clients that live on.

Two groups consume one queue: "plain", and "ordered", for which order matters. Judged by what
clients have received, never by the core's own state. What waits for confirmation is sent to no
client, and is lost if the log is cut before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.records import ImageEnd, read_body
from aerobee.broker.pop.entries import PopEntry, decode_entry, ranges_of
from aerobee.broker.pop.journal_state import PopJournalState, file_reader
from aerobee.broker.pop.lanes import lane_of
from aerobee.broker.pop.queue_state import QueueState
from aerobee.broker.pop.requests import (
    Changed,
    Delivery,
    Handled,
    Move,
    Poll,
    Read,
    ToRead,
)
from aerobee.broker.pop.term import PopTerm
from aerobee.runtime.errors import AerobeeError, Busy
from aerobee.store.engine.tables.finished_ranges import Range
from tests.simulation.journalled import Journalled, JournalScene, SceneWriter, Written
from tests.simulation.judge import Judge, expect
from tests.simulation.pops.told import (
    ATTEMPTS_MAX,
    CLIENTS,
    GROUPS,
    HELD_MS_MAX,
    LIMITS,
    ORDERED,
    RELEASED_MS,
    SILENCE_MS,
    At,
    Knowledge,
    Message,
    Pending,
    Replaced,
    Told,
    place_of,
)

JUDGE = Judge()


class PopScene(JournalScene[Message | Replaced]):
    """Messages that two groups receive by POP."""

    crash_shares = (0.0, 0.02)
    full_shares = (0, 0, 0.1)
    state: PopJournalState

    def __init__(
        self,
        seed: int,
        *,
        loses_confirmed: bool = False,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(seed, place_of, loses_confirmed=loses_confirmed, trace=trace)
        self.deliveries = 0
        self.acknowledged = 0
        self.refused = 0
        self.heard_ms: dict[str, int] = {}
        self.gone_ms: dict[str, int] = {}
        self.leaves = 0
        self.known: dict[tuple[GroupQueue, int], Knowledge] = {}
        self.handles: list[Told] = []
        """Handles that clients may use, including old ones."""
        self.open()

    # ------------------------------------------------------------------------------ variants

    term_kind: type[PopTerm] = PopTerm

    def made_term(self) -> PopTerm:
        return self.term_kind(
            self.state,
            self.writer,
            self.clock,
            is_ordered=lambda group: group == ORDERED.group,
            held_until_ms=self.held_until_ms,
            finished_elsewhere=self.replaced,
            limits=LIMITS,
        )

    def is_told_at_once(self) -> bool:
        """Whether clients are told before confirmation."""
        return False

    # ------------------------------------------------------------------------------ opening

    def open(self) -> None:
        """A process starts, or another replica takes over: everything follows from the log."""
        self.state = self.recover(PopJournalState(), file_reader, decode_entry)
        self.began_ms = self.latest_ms = self.clock.now_ms()
        self.writer = SceneWriter(self, entries_max=self.chance.choice((3, 8, 100)))
        self.term = self.made_term()
        self.writer.term = self.term
        self.pending: list[Pending] = []
        self.moving: list[tuple[Replaced, int]] = []

    def held_until_ms(self, client_id: str, taken_ms: int) -> int:
        """According to the rules of renewal."""
        gone_ms = self.gone_ms.get(client_id)
        if gone_ms is not None and gone_ms >= taken_ms:
            return min(gone_ms + RELEASED_MS, taken_ms + HELD_MS_MAX)
        heard_ms = max(self.heard_ms.get(client_id, 0), self.began_ms, taken_ms)
        return min(heard_ms + SILENCE_MS, taken_ms + HELD_MS_MAX)

    def replaced(self, key: GroupQueue) -> Sequence[Range]:
        """What is confirmed to be finished by a copy."""
        records = self.log.records[: self.log.confirmed]
        return ranges_of(
            sorted(
                record.offset
                for record in records
                if isinstance(record, Replaced) and record.key == key
            )
        )

    def messages(self) -> list[Message]:
        """The confirmed ones, by offset."""
        records = self.log.records[: self.log.confirmed]
        return [record for record in records if isinstance(record, Message)]

    # ------------------------------------------------------------------------------ faults

    def fall_over(self) -> None:
        """The process dies, and what was not confirmed may be lost."""
        self.falls += 1
        self.writer.is_over = True
        end = self.chance.randint(self.log.confirmed, len(self.log.records))
        if self.loses_confirmed and self.chance.random() < 0.3:
            end = self.chance.randint(max(0, self.log.confirmed - 12), end)
        self.log.cut(end)
        if end < self.log.confirmed:
            self._forget_lost(end)
        for known in self.known.values():
            # A refused one may still take effect, if an image contains it.
            known.may_be_finished = [
                each
                for each in known.may_be_finished
                if 0 < each.end <= end or each.error is not None
            ]
        self.clock.advance_ms(self.chance.choice((1, 20, 3_000)))
        self.open()
        for known in self.known.values():
            # Each master decides by its own clock which clients are alive.
            if known.told and not known.told[-1].delivery.visible_ms:
                last = known.told[-1]
                until_ms = self.held_until_ms(last.client_id, last.at_ms)
                known.earliest_ms = min(known.earliest_ms, until_ms)
        for key in GROUPS:
            standing = self.state.standing(key)
            for offset, flight in () if standing is None else standing.flights.items():
                # As far as the new master can know, it may not have reached its client.
                if flight.holder and flight.taken_ms >= self.state.latest_ms - LIMITS.unsure_ms:
                    known = self.of(key, offset)
                    until_ms = self.began_ms + LIMITS.unsure_held_ms
                    known.earliest_ms = min(known.earliest_ms, until_ms)

    def _forget_lost(self, end: int) -> None:
        """Confirmed data was lost: nothing is promised about it."""
        messages = sum(isinstance(each, Message) for each in self.log.records)
        self.known = {at: known for at, known in self.known.items() if at[1] < messages}
        for known in self.known.values():
            # Those that were told stay in the judge's list: a lost one is no longer a delivery, and
            # its serial is invalid.
            known.told = [each for each in known.told if each.end <= end]
            known.uncounted, known.earliest_ms = ATTEMPTS_MAX, 0
            if known.finished_end > end:
                known.finished_end = 0

    # ------------------------------------------------------------------------------ steps

    def of(self, key: GroupQueue, offset: int) -> Knowledge:
        return self.known.setdefault((key, offset), Knowledge())

    def send(self) -> None:
        lane = lane_of(self.chance.choice((b"", b"a", b"b", b"c")))
        self.log.append(Message(lane, wanted=self.chance.random() < 0.85))

    def begin_queues(self) -> None:
        """POP starts to consume the queue for both groups."""
        for key in GROUPS:
            if self.term.queue(key) is None:
                self.term.begin(key, 0)

    def queue(self, key: GroupQueue) -> QueueState:
        self.begin_queues()
        queue = self.term.queue(key)
        if queue is None:
            raise Busy("the begin of the queue was not written")
        return queue

    def poll(self, *, client_id: str = "", key: GroupQueue | None = None, count: int = 0) -> int:
        """A client asks for messages; returns how many it will be told of."""
        chance, now_ms = self.chance, self.clock.now_ms()
        client_id = client_id or chance.choice(CLIENTS)
        key = key or chance.choice(GROUPS)
        self.hear(client_id)
        poll = Poll(
            client_id,
            count or chance.choice((1, 3, 8)),
            chance.choice((None, 200, 2_000, 9_000)),
            attempt_id=chance.choice(("", "", "once", "twice")),
            attempts_max=ATTEMPTS_MAX,
        )
        queue = self.queue(key)
        again = queue.repeated(poll, now_ms)
        if again:
            self._repeat(client_id, key, again)
            return len(again)
        wanted = queue.wants(poll, now_ms)
        for move in wanted.moves:
            self._move(key, move)
        read = self._read(wanted)
        if chance.random() < 0.15:
            chance.choice((self.poll, self.acknowledge, self.change, self.give_up, self.advance))()
            queue = self.queue(key)
            now_ms = self.clock.now_ms()
        taken = queue.take(poll, read, now_ms)
        if len(taken.deliveries) > poll.count:
            JUDGE.broken("a poll got more than it asked for")
        self._judge_taken(key, taken.deliveries)
        done = self.term.write(taken.entries)
        self.may_crash()
        if taken.deliveries:
            leaves = self.leaves
            answer = [Told(client_id, key, each, now_ms, 0) for each in taken.deliveries]
            assert isinstance(done, Written), "deliveries are entries"
            self._when(done, lambda end: self._answer(answer, end, has_left=leaves < self.leaves))
        return len(taken.deliveries)

    def _read(self, wanted: ToRead) -> Read:
        messages = self.messages()
        end = max(wanted.begin, min(len(messages), wanted.begin + max(0, wanted.room)))
        found = [*wanted.again, *range(wanted.begin, end)]
        passed = {each: messages[each].lane for each in found if messages[each].wanted}
        return Read(passed, wanted.again, wanted.begin, end)

    def _repeat(self, client_id: str, key: GroupQueue, again: Sequence[Delivery]) -> None:
        """The same deliveries again."""
        done = self.writer.newest

        def answer(end: int) -> None:
            for delivery in again:
                told = self.of(key, delivery.offset).told
                if not told or told[-1].delivery.serial <= delivery.serial:
                    self.handles.append(Told(client_id, key, delivery, 0, end))

        if done is None:
            answer(len(self.log.records))
        else:
            self._when(done, answer)

    def _answer(self, answer: Sequence[Told], end: int, *, has_left: bool) -> None:
        """The record is confirmed: the client is told of its messages, unless it is gone."""
        is_gone = self.chance.random() < 0.1
        for told in answer:
            told.end = end
            if not is_gone:
                self.deliveries += 1
                self._judge_told(told)
                self.handles.append(told)
            known = self.of(told.key, told.delivery.offset)
            if is_gone or has_left or known.taken_serial != told.delivery.serial:
                known.earliest_ms = 0
        if is_gone:
            key = answer[0].key
            deliveries = [told.delivery[:2] for told in answer]
            self.term.write(self.queue(key).give_back(deliveries, self.clock.now_ms()))

    def acknowledge(self, told: Told | None = None) -> None:
        """A client acknowledges a message, perhaps with an old delivery of it, or twice."""
        told = told or self._a_handle()
        if told is None:
            return
        key, delivery = told.key, told.delivery
        queue = self.queue(key)
        result = queue.acknowledge([(delivery.offset, delivery.serial)], self.clock.now_ms())
        (handled,) = result.handled
        if handled is not Handled.DONE:
            self.refused += 1
            return
        self._judge_handled(told)
        known = self.of(key, delivery.offset)
        try:
            done = self._written(result.entries)
        except AerobeeError:
            # Refused, but possibly in the next record nevertheless.
            known.may_be_finished += [self.writer.newest] if self.writer.newest else []
            raise
        known.may_be_finished.append(done)
        self.may_crash()
        self._when(done, lambda end: self._finished(known, end))

    def _finished(self, known: Knowledge, end: int) -> None:
        self.acknowledged += 1
        known.finished_end = end

    def change(self) -> None:
        """A client asks for redelivery of a message later, or at once."""
        told = self._a_handle()
        if told is None:
            return
        key, delivery = told.key, told.delivery
        invisible_ms = self.chance.choice((0, 100, 5_000))
        is_counted = self.chance.random() < 0.7
        now_ms = self.clock.now_ms()
        queue = self.queue(key)
        changed = queue.change(
            delivery.offset, delivery.serial, invisible_ms, now_ms, is_counted=is_counted
        )
        if changed.handled is Handled.DONE:
            self._judge_handled(told)
            known = self.of(key, delivery.offset)
            known.earliest_ms = min(known.earliest_ms, now_ms + invisible_ms)
            known.uncounted += not is_counted
            assert changed.delivery is not None
            known.taken_serial = changed.delivery.serial
            done = self._written(changed.entries)
            self._when(done, lambda end: self._changed(told, changed, end))

    def _changed(self, told: Told, changed: Changed, end: int) -> None:
        assert changed.delivery is not None
        newer = Told(told.client_id, told.key, changed.delivery, self.clock.now_ms(), end)
        known = self.of(told.key, changed.delivery.offset)
        known.told.append(newer)
        self.handles.append(newer)

    def give_up(self) -> None:
        """A client forwards a message to the dead letters."""
        told = self._a_handle()
        if told is None or self.chance.random() < 0.5:
            return
        key, delivery = told.key, told.delivery
        handled, move = self.queue(key).forward(delivery.offset, delivery.serial)
        if handled is Handled.DONE:
            self._judge_handled(told)
            if move is not None:
                self._move(key, move)

    def _a_handle(self) -> Told | None:
        if not self.handles:
            return None
        return self.handles[-self.chance.randint(1, min(12, len(self.handles)))]

    def _move(self, key: GroupQueue, move: Move) -> None:
        """A copy replaces the message, as the offset journal says: once."""
        replaced = Replaced(key, move.offset, move.reason)
        if self.chance.random() < self.full_share:
            self.queue(key).kept(move.offset, self.clock.now_ms())
            return
        places = [(each.key, each.offset) for each in self.all_replaced()]
        if (key, move.offset) not in places:
            self.log.append(replaced)
        self.moving.append((replaced, len(self.log.records)))
        self.may_crash()

    def all_replaced(self) -> list[Replaced]:
        return [each for each in self.log.records if isinstance(each, Replaced)]

    def hear(self, client_id: str = "") -> None:
        client_id = client_id or self.chance.choice(CLIENTS)
        heard_ms, now_ms = self.heard_ms.get(client_id, 0), self.clock.now_ms()
        if self.latest_ms - max(heard_ms, self.began_ms) >= SILENCE_MS:
            self._may_be_gone(client_id, now_ms)
        self.heard_ms[client_id] = max(heard_ms, now_ms)
        self.gone_ms.pop(client_id, None)

    def leave(self) -> None:
        """A client announces that it leaves."""
        client_id, now_ms = self.chance.choice(CLIENTS), self.clock.now_ms()
        self.gone_ms[client_id] = now_ms
        self._may_be_gone(client_id, now_ms)
        for key in GROUPS:
            self.queue(key).client_gone(client_id, now_ms)

    def _may_be_gone(self, client_id: str, now_ms: int) -> None:
        """What the client holds may be redelivered, whatever it does from now on."""
        self.leaves += 1
        for known in self.known.values():
            if known.told and known.told[-1].client_id == client_id:
                known.earliest_ms = min(known.earliest_ms, now_ms)

    def advance(self) -> None:
        self.clock.advance_ms(self.chance.choice((1, 50, 400, 3_000)))
        self.latest_ms = max(self.latest_ms, self.clock.now_ms())

    def save(self) -> None:
        """Saves the file of the confirmed state; a process that dies keeps it."""
        self.saved_state = self.state.snapshot()()

    def image(self) -> None:
        """Written entry by entry, with other writes in between. A reader that begins with it ends
        up with the same state as one that has read everything."""
        self.writer.flush()
        first = self.log.end_of("journal")
        for entry in self.term.image():
            self.writer.add(entry)
            if self.chance.random() < 0.3:
                self.chance.choice((self.poll, self.acknowledge, self.change))()
        self.writer.add(ImageEnd(len(self.log.records), first, self.clock.now_ms()))
        self.writer.flush()
        late = PopJournalState()
        for record in self.log.records:
            if isinstance(record, Journalled):
                entries = cast("list[Any]", read_body(record.body, decode_entry))
                if record.offset == first and first:
                    late.skip_to(first)
                if record.offset >= first:
                    late.apply(entries, record.offset)
        self._check_image(late)

    def _check_image(self, late: PopJournalState) -> None:
        whole = PopJournalState()
        for record in self.log.records:
            if isinstance(record, Journalled):
                whole.apply(cast("list[Any]", read_body(record.body, decode_entry)), record.offset)
        if whole.copies() != late.copies() and not self.full_share:
            JUDGE.broken(f"an image says {late.copies()}, the journal {whole.copies()}")

    def flush(self) -> None:
        self.writer.flush()

    def confirm(self) -> None:
        """More of the log is confirmed: what waited for it is answered."""
        self.log.confirmed = self.chance.randint(self.log.confirmed, len(self.log.records))
        self.writer.confirm()
        waiting, self.pending = self.pending, []
        for index, pending in enumerate(waiting):
            if pending.done.is_done:
                if pending.done.error is None:
                    try:
                        pending.tell(pending.done.end)
                    except BaseException:
                        self.pending += waiting[index + 1 :]
                        raise
            else:
                self.pending.append(pending)
        moving, self.moving = self.moving, []
        for index, (replaced, end) in enumerate(moving):
            if end > self.log.confirmed:
                self.moving.append((replaced, end))
                continue
            try:
                queue = self.queue(replaced.key)
                self.term.write(queue.moved(replaced.offset, self.clock.now_ms()))
            except BaseException:
                # Repeated by what is finished elsewhere.
                self.moving += moving[index + 1 :]
                raise

    def _written(self, entries: Sequence[PopEntry]) -> Written:
        done = self.term.write(entries)
        assert isinstance(done, Written), "there are entries, and the writer is this scene's"
        return done

    def _when(self, done: Written, tell: Callable[[int], None]) -> None:
        if self.is_told_at_once():
            tell(len(self.log.records))
        else:
            self.pending.append(Pending(done, tell))

    # ------------------------------------------------------------------------------ judging

    def _judge_taken(self, key: GroupQueue, deliveries: Sequence[Delivery]) -> None:
        """Judge at the moment of the decision. What was due once stays due, whatever the clock says
        later."""
        lanes = set()
        replaced = self._replaced_of(key)
        for delivery in deliveries:
            at = At(key, delivery.offset)
            known = self.of(*at)
            JUDGE.done_for_good(delivery.offset in replaced, at)
            if known.told:
                JUDGE.not_early(known.earliest_ms - self.latest_ms, at)
            known.taken_serial = delivery.serial
            # Whether or not the client is told, its time counts from now on.
            known.earliest_ms = min(known.earliest_ms, delivery.visible_ms)
            lanes.add(self.messages()[delivery.offset].lane)
        if key == ORDERED and len(lanes) < len(deliveries):
            JUDGE.broken("one answer has two messages of a message group")

    def _judge_told(self, told: Told) -> None:
        """A client is told of a delivery."""
        key, delivery = told.key, told.delivery
        at = At(key, delivery.offset)
        known = self.of(*at)
        JUDGE.done_for_good(known.finished_end > 0, at)
        JUDGE.attempts_end(delivery.attempt, ATTEMPTS_MAX, at)
        if known.told:
            last = known.told[-1].delivery
            JUDGE.attempts_rise(delivery.attempt + known.uncounted, last.attempt, at)
            if delivery.serial <= last.serial and not self.loses_confirmed:
                JUDGE.broken(f"{at} comes again under an old serial")
        expect(self.messages()[delivery.offset].wanted, f"{at} does not pass its filter")
        if key == ORDERED:
            self._judge_order(at)
        known.told.append(told)
        known.earliest_ms = delivery.visible_ms or self.held_until_ms(told.client_id, told.at_ms)
        known.uncounted = 0

    def _judge_order(self, at: At) -> None:
        messages, replaced = self.messages(), self._replaced_of(ORDERED)
        for older in range(at.offset):
            is_before = messages[older].lane == messages[at.offset].lane and messages[older].wanted
            known = self.known.get((ORDERED, older))
            is_done = older in replaced or bool(known and known.may_be_finished)
            JUDGE.in_order(is_done or not is_before, at, "message group")

    def _judge_handled(self, told: Told) -> None:
        at = At(told.key, told.delivery.offset)
        known = self.of(*at)
        JUDGE.done_for_good(known.finished_end > 0, at)
        newest = known.told[-1].delivery.serial if known.told else 0
        JUDGE.handle_is_valid(told.delivery.serial >= newest, at)

    def _replaced_of(self, key: GroupQueue) -> set[int]:
        return {each.offset for each in self.all_replaced() if each.key == key}

    # ------------------------------------------------------------------------------ a life

    def actions(self) -> list[Callable[[], object]]:
        return [
            *[self.send] * 8,
            *[self.poll] * 8,
            *[self.acknowledge] * 6,
            *[self.confirm] * 8,
            *[self.flush] * 5,
            *[self.advance] * 3,
            *[self.change] * 2,
            self.give_up,
            self.hear,
            self.leave,
            self.save,
            self.image,
        ]

    def let_time_pass(self) -> None:
        if self.chance.random() < 0.01:
            self.clock.step_wall_ms(self.chance.choice((-5_000, 5_000)))
        self.latest_ms = max(self.latest_ms, self.clock.now_ms())

    def seen(self) -> str:
        return f"; { {key.group: self.state.standing(key) for key in GROUPS} }"

    def come_to_rest(self) -> None:
        self._rest()
        for _ in range(600):
            self.clock.advance_ms(SILENCE_MS + 10_000)
            self.latest_ms = self.clock.now_ms()
            for key in GROUPS:
                first = len(self.handles)
                self.poll(client_id="ada", key=key, count=8)
                self._rest()
                for told in self.handles[first:]:
                    self.acknowledge(told)
                self._rest()
            ends = {self.queue(key).committed for key in GROUPS}
            if ends == {len(self.messages())}:
                break
        else:
            JUDGE.broken("the groups do not come to an end")
        self._judge_end()

    def _rest(self) -> None:
        for _ in range(3):
            self.writer.flush()
            self.log.confirmed = len(self.log.records)
            self.confirm()

    def _judge_end(self) -> None:
        replaced: set[tuple[GroupQueue, int]] = set()
        for each in self.all_replaced():
            at = At(each.key, each.offset)
            JUDGE.once(replaced, at, f"the copy of {at}")
            replaced.add(at)
        for key in () if self.loses_confirmed else GROUPS:
            for offset, message in enumerate(self.messages()):
                known = self.known.get((key, offset))
                is_done = (key, offset) in replaced or bool(known and known.may_be_finished)
                JUDGE.keeps(is_done or not message.wanted, At(key, offset))
