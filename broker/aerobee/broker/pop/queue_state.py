"""PURE: one queue of a group as POP consumes it: who has which message, and what comes next.

    wants -> the caller reads -> take -> the entry is confirmed -> the answer is written
    acknowledge, change, forward -> the entry is confirmed -> the answer is written

Owns: the decisions of one master. They take effect here at once and are returned as entries, which
the caller adds to the journal in the same order. No decision may be reported before its entry is
confirmed: so attempts never fall, and every replica knows of each message that a client has. The
caller passes the time, Unix ms, and does all reading.

Invariant: `standing` holds exactly what the entries say. All else follows from it and from the log,
so a new master continues from there: it reads again from the oldest unfinished message on, and
skips what is in flight or finished.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.pop.entries import (
    NO_LANE,
    Begun,
    Finished,
    Flight,
    Invisible,
    InvisibleKind,
    PopEntry,
    joined,
    ranges_of,
)
from aerobee.broker.pop.lanes import Lanes
from aerobee.broker.pop.ready import Ready
from aerobee.broker.pop.requests import (
    Acknowledged,
    Changed,
    Delivery,
    Handled,
    Move,
    MoveReason,
    Poll,
    PopLimits,
    Read,
    Taken,
    ToRead,
)
from aerobee.broker.pop.standing import Standing
from aerobee.broker.pop.waits import HeldUntil, Unsure, Waits
from aerobee.runtime.errors import Busy
from aerobee.store.engine.tables.finished_ranges import Range

REPEATED_POLLS_MAX: Final = 1_000
"""Clients of a queue whose last poll is remembered."""
_SERIAL_BITS: Final = 20
_MOVES_AT_ONCE: Final = 32


def first_serial(now_ms: int) -> int:
    """The first serial of a run: larger than all serials of earlier runs, including those whose
    entries were lost, provided that the clock has advanced and fewer than a million messages are
    handed out per millisecond."""
    return now_ms << _SERIAL_BITS


class _Repeatable(NamedTuple):
    attempt_id: str
    at_ms: int
    serials: dict[int, int]


class QueueState:
    """One master's state; see the module. Synchronous; nothing here reads or waits."""

    def __init__(
        self,
        key: GroupQueue,
        standing: Standing,
        now_ms: int,
        *,
        is_ordered: bool,
        held_until_ms: HeldUntil,
        unsure: Unsure,
        limits: PopLimits,
    ) -> None:
        """`standing` belongs to this object from now on. `is_ordered`: order matters within message
        groups; make another object when that changes. `unsure`: of the last master."""
        self.key = key
        self.is_ordered = is_ordered
        self._held_until_ms = held_until_ms
        self._unsure = unsure
        self._limits = limits
        self._moving: dict[int, MoveReason] = {}
        self._polls: dict[str, _Repeatable] = {}
        standing.next_serial = max(standing.next_serial, first_serial(now_ms))
        self.standing = standing
        self.resume(standing)

    def __repr__(self) -> str:
        return f"QueueState({self.key}, {self.standing}, next={self._next_offset})"

    def resume(self, standing: Standing) -> None:
        """Continue from here: what was decided later has never happened."""
        standing.next_serial = max(standing.next_serial, self.standing.next_serial)
        self.standing = standing
        self._next_offset = standing.committed
        flights = sorted(standing.flights.items())
        ends = [each.end for each in standing.finished][-1:] + [
            each[0] + 1 for each in flights[-1:]
        ]
        self._known_end = max(ends, default=0)
        self._lanes = Lanes()
        self._ready = Ready()
        self._aside: set[int] = set()
        self._waits = Waits(standing.flights, self._held_until_ms, self._unsure)
        self._moving = {each: why for each, why in self._moving.items() if each in standing.flights}
        for offset, flight in flights:
            if self.is_ordered:
                self._lanes.add(offset, flight.lane)
        # Newest first: of a client's messages, the newest may be redelivered before the rest.
        for offset, flight in sorted(flights, key=lambda each: -each[1].taken_ms):
            self._waits.watch(offset, flight)

    # ------------------------------------------------------------------------------ asking

    @property
    def committed(self) -> int:
        """The oldest unfinished message: what the log must keep."""
        return self.standing.committed

    def unfinished(self, queue_end: int) -> int:
        """The number of messages of a queue with this end that the group has not finished."""
        return max(0, queue_end - self.standing.committed - self.standing.finished_count)

    @property
    def in_flight(self) -> int:
        """How many messages clients have, as of the last time passed in."""
        flights = self.standing.flights
        return len(flights) - sum(offset in flights for offset in self._ready)

    def flight(self, offset: int) -> Flight | None:
        """None: the message was not handed out, or is finished."""
        return self.standing.flights.get(offset)

    def is_newest(self, offset: int, serial: int) -> bool:
        """Whether this is the message's newest delivery, and the message is not finished."""
        flight = self.standing.flights.get(offset)
        return flight is not None and flight.serial == serial

    def held_by(self, client_id: str) -> list[int]:
        """The messages that a client holds while it is alive, in ascending order."""
        flights = self.standing.flights
        return sorted(each for each, flight in flights.items() if flight.holder == client_id)

    def is_moving(self, offset: int) -> bool:
        """Whether a copy is about to replace it."""
        return offset in self._moving

    def wake_ms(self) -> int | None:
        """When to check again, unless new messages come; None: no message waits for a time. It may
        be too early."""
        return self._waits.next_ms()

    def has_ready(self, now_ms: int) -> bool:
        """Whether anything is due for redelivery now."""
        self._expire(now_ms)
        return bool(self._ready)

    # ------------------------------------------------------------------------------ receiving

    def has_nothing(self, queue_end: int, now_ms: int) -> bool:
        """Whether no poll would get anything, as all messages before `queue_end` are with clients
        or finished: true for most checks of waiting clients, which then need no read."""
        self._expire(now_ms)
        return self._next_offset == queue_end and not self._ready

    def unread(self, queue_end: int, now_ms: int) -> int:
        """How many messages of a queue with this end a poll may get now."""
        self._expire(now_ms)
        return max(0, queue_end - self._next_offset) + len(self._ready)

    def repeated(self, poll: Poll, now_ms: int) -> list[Delivery]:
        """What the client's last poll took, if this repeats it and the messages were not handled
        since. Report it once the journal's newest entry is confirmed."""
        last = self._polls.get(poll.client_id)
        if last is None or not poll.attempt_id or last.attempt_id != poll.attempt_id:
            return []
        if now_ms - last.at_ms > self._limits.repeated_ms:
            return []
        self._expire(now_ms)
        found = []
        for offset, serial in last.serials.items():
            flight = self._current(offset, serial)
            if flight is not None and offset not in self._ready:
                found.append(Delivery(offset, serial, flight.attempt, flight.visible_ms))
        return found

    def wants(self, poll: Poll, now_ms: int) -> ToRead:
        """What to read for a poll, at most `poll.count` messages; `take` decides which of them it
        gets. Each message to move is returned only once."""
        self._expire(now_ms)
        again: list[int] = []
        moves: list[Move] = []
        for offset in self._ready.first(poll.count + _MOVES_AT_ONCE, poll.origin(self.key.topic)):
            if len(again) == poll.count:
                break
            flight = self.standing.flights.get(offset)
            reason = None if flight is None else self._why_moved(offset, flight, poll)
            if flight is not None and reason is not None:
                self._moving[offset] = reason
                self._ready.discard(offset)
                moves.append(Move(offset, reason, flight.attempt))
            else:
                again.append(offset)
        if poll.takes_runs and self.is_ordered:
            again = self._with_runs(again, poll.count, now_ms)
        room, refusal = self._room()
        self._pass_known()
        fresh = min(poll.count - len(again), room)
        return ToRead(again, self._next_offset, fresh, moves, refusal if fresh <= 0 else None)

    def _with_runs(self, firsts: list[int], count: int, now_ms: int) -> list[int]:
        """What a poll for runs gets with these messages, which are the first of their lanes."""
        again = list(firsts)
        for first in firsts:
            for offset in self._lanes.after(first):
                if len(again) >= count or not self._may_follow(offset, now_ms):
                    break
                again.append(offset)
        return sorted(again)

    def _may_follow(self, offset: int, now_ms: int) -> bool:
        """Whether nobody has it."""
        flight = self.standing.flights.get(offset)
        return offset not in self._moving and (flight is None or flight.visible_ms <= now_ms)

    def _why_moved(self, offset: int, flight: Flight, poll: Poll) -> MoveReason | None:
        if flight.attempt >= poll.attempts_max:
            return MoveReason.DEAD
        span = self._next_offset - offset
        is_late = span > self._limits.span_max and offset == self.committed
        return MoveReason.LATE if is_late and not self.is_ordered else None

    def _room(self) -> tuple[int, Busy | None]:
        """Room for messages never handed out before."""
        limits, key = self._limits, self.key
        room = limits.flights_max - len(self.standing.flights)
        queue = f"queue {key.queue_id} of topic {key.topic}"
        if room <= 0:
            return 0, Busy(
                f"group {key.group} has {limits.flights_max} messages of {queue} in flight: "
                "acknowledge some of them first"
            )
        if not self.is_ordered:
            # A poll that has read enough for others is not at fault; it asks elsewhere.
            return (room if len(self._aside) < limits.aside_max else 0), None
        if self._lanes.has(NO_LANE):
            return 0, None  # they were taken when order did not matter: those first
        if self._lanes.waiting >= limits.waiting_max:
            return 0, Busy(
                f"{limits.waiting_max} messages of {queue} wait for older ones of their message "
                f"groups: group {key.group} has to finish those first"
            )
        return room, None

    def _pass_known(self) -> None:
        """Continue reading after what is in flight or finished."""
        standing = self.standing
        at = max(self._next_offset, standing.committed)
        while at < self._known_end:
            after = standing.finished.first_outside(at)
            if after == at and at not in standing.flights:
                break
            at = max(after, at + 1)
        self._next_offset = at

    def take(self, poll: Poll, read: Read, now_ms: int) -> Taken:
        """Hand out what may be handed out now, at most `poll.count` messages."""
        self._expire(now_ms)
        offsets: list[int] = []
        others: list[Range] = []
        messages, flights, count = read.messages, self.standing.flights, poll.count
        elsewhere = self._told_origins(read, poll.origin(self.key.topic))
        for offset in read.again:
            if offset in elsewhere:
                continue
            if offset not in self._ready and not self._continues(poll, offset, offsets, now_ms):
                continue  # another poll was faster
            flight = flights.get(offset)
            if offset not in messages:
                others.append(Range(offset, offset + 1))
            elif flight is not None and flight.attempt >= poll.attempts_max:
                continue  # its last delivery happened during the read: `wants` will move it
            elif len(offsets) < count:
                offsets.append(offset)
        if read.begin <= self._next_offset < read.end:
            self._take_new(read, elsewhere, poll, offsets, others)
        # Messages that a new master reads again may be older than redelivered ones.
        offsets.sort()
        others.sort()
        taken = Taken()
        if others:
            finished = Finished(self.key, joined(others), now_ms)
            self._finish(finished)
            taken.entries.append(finished)
        if not offsets:
            return taken
        before = [flights.get(offset) for offset in offsets]
        attempts = [
            1 + (read.failures.get(offset, 0) if each is None else each.attempt)
            for offset, each in zip(offsets, before, strict=True)
        ]
        lanes = [messages[offset] for offset in offsets] if self.is_ordered else []
        is_held = poll.invisible_ms is None
        entry = Invisible(
            InvisibleKind.TAKEN,
            self.key,
            tuple(offsets),
            self.standing.next_serial,
            now_ms,
            0 if poll.invisible_ms is None else now_ms + poll.invisible_ms,
            poll.client_id if is_held else "",
            tuple(attempts) if max(attempts) > 1 else (),
            tuple(lanes),
        )
        taken.entries.append(entry)
        taken.deliveries = self._hand_out(entry)
        if poll.attempt_id:
            self._remember(poll, taken.deliveries, now_ms)
        return taken

    def _told_origins(self, read: Read, origin: str) -> Collection[int]:
        """Record the origins found; returns those that are not for a poll of this origin."""
        for offset, each in read.origins.items():
            if not self.standing.is_finished(offset):
                self._ready.is_of(offset, each)
        return {offset for offset, each in read.origins.items() if origin not in ("", each)}

    def _take_new(
        self,
        read: Read,
        elsewhere: Collection[int],
        poll: Poll,
        offsets: list[int],
        others: list[Range],
    ) -> None:
        """Messages never handed out before, as far as there is room."""
        at, end, flights = self._next_offset, read.end, self.standing.flights
        count = min(poll.count, len(offsets) + self._limits.flights_max - len(flights))
        found = sorted((*read.messages, *elsewhere)) if elsewhere else read.messages
        for offset in found:
            if not at <= offset < end or self._is_known(offset):
                continue
            is_aside = offset not in read.messages
            if is_aside:
                is_full = len(self._aside) >= self._limits.aside_max
            else:
                is_full = len(offsets) >= count or not self._may_read()
            if is_full:
                end = offset
                break
            if offset > at:
                others += self._unknown(at, offset)
            at = offset + 1
            if is_aside:
                self._aside.add(offset)
                self._ready.add(offset)
            elif (
                not self.is_ordered
                or self._lanes.add(offset, read.messages[offset])
                or self._continues(poll, offset, offsets, 0)
            ):
                offsets.append(offset)
        if end > at:
            others += self._unknown(at, end)
        self._next_offset = end

    def _continues(self, poll: Poll, offset: int, taken: list[int], now_ms: int) -> bool:
        """Whether the poll also gets this message, because it has the one before."""
        if not (poll.takes_runs and self.is_ordered and taken and offset in self._lanes):
            return False
        return self._lanes.before(offset) in taken and self._may_follow(offset, now_ms)

    def _may_read(self) -> bool:
        """Whether one more may wait for its turn."""
        lanes = self._lanes
        return not self.is_ordered or (
            lanes.waiting < self._limits.waiting_max and not lanes.has(NO_LANE)
        )

    def _is_known(self, offset: int) -> bool:
        return offset < self._known_end and (
            offset in self.standing.flights or self.standing.is_finished(offset)
        )

    def _unknown(self, begin: int, end: int) -> list[Range]:
        if begin >= self._known_end:
            return [Range(begin, end)]
        return list(ranges_of(each for each in range(begin, end) if not self._is_known(each)))

    def _remember(self, poll: Poll, deliveries: Iterable[Delivery], now_ms: int) -> None:
        last = self._polls.pop(poll.client_id, None)
        if last is None or last.attempt_id != poll.attempt_id:
            last = _Repeatable(poll.attempt_id, now_ms, {})
        last.serials.update((each.offset, each.serial) for each in deliveries)
        self._polls[poll.client_id] = last
        if len(self._polls) > REPEATED_POLLS_MAX:
            del self._polls[next(iter(self._polls))]

    def give_back(self, handles: Iterable[tuple[int, int]], now_ms: int) -> Sequence[PopEntry]:
        """Deliveries (offset, serial) whose receiver left before it got them: they are redelivered
        at once, and the attempt does not count."""
        offsets = sorted(offset for offset, serial in handles if self._current(offset, serial))
        if not offsets:
            return ()
        return [self._change(InvisibleKind.RETURNED, offsets, now_ms, now_ms)[0]]

    # ------------------------------------------------------------------------------ handling

    def acknowledge(self, handles: Sequence[tuple[int, int]], now_ms: int) -> Acknowledged:
        """Finish deliveries (offset, serial)."""
        done: set[int] = set()
        results = []
        for offset, serial in handles:
            if self._current(offset, serial) is not None:
                done.add(offset)
                results.append(Handled.DONE)
            else:
                results.append(self._why_not(offset))
        if not done:
            return Acknowledged(results)
        entry = Finished(self.key, ranges_of(sorted(done)), now_ms)
        self._finish(entry)
        return Acknowledged(results, (entry,))

    def change(
        self, offset: int, serial: int, invisible_ms: int, now_ms: int, *, is_counted: bool = True
    ) -> Changed:
        """Redeliver the message after this time, to any client. `is_counted` False: the delivery
        does not count as an attempt; this cannot be undone."""
        flight = self._current(offset, serial)
        if flight is None:
            return Changed(self._why_not(offset))
        is_counted &= flight.is_counted
        kind = InvisibleKind.CHANGED if is_counted else InvisibleKind.RETURNED
        entry, (delivery,) = self._change(kind, [offset], now_ms, now_ms + invisible_ms)
        return Changed(Handled.DONE, delivery, (entry,))

    def forward(self, offset: int, serial: int) -> tuple[Handled, Move | None]:
        """The receiver gives up on the message. A second call while it moves gets DONE without a
        move: it waits for the first call's move."""
        if self._moving.get(offset) is MoveReason.FORWARDED:
            flight = self.standing.flights[offset]
            return (Handled.DONE if flight.serial == serial else Handled.STALE), None
        flight_now = self._current(offset, serial)
        if flight_now is None:
            return self._why_not(offset), None
        self._moving[offset] = MoveReason.FORWARDED
        self._ready.discard(offset)
        return Handled.DONE, Move(offset, MoveReason.FORWARDED, flight_now.attempt)

    def moved(self, offset: int, now_ms: int) -> Sequence[PopEntry]:
        """The copy is owed or stored: the message is finished."""
        self._moving.pop(offset, None)
        return self.settle([Range(offset, offset + 1)], now_ms)

    def kept(self, offset: int, now_ms: int) -> None:
        """There will be no copy now: restore the state before the move."""
        if self._moving.pop(offset, None) is not None:
            flight = self.standing.flights.get(offset)
            if flight is not None:
                self._waits.watch(offset, flight)
                self._expire(now_ms)

    def _current(self, offset: int, serial: int) -> Flight | None:
        """The flight, if this is its newest delivery and it is not being moved."""
        flight = self.standing.flights.get(offset)
        if flight is None or flight.serial != serial or offset in self._moving:
            return None
        return flight

    def _why_not(self, offset: int) -> Handled:
        return Handled.FINISHED if self.standing.is_finished(offset) else Handled.STALE

    def _change(
        self, kind: InvisibleKind, offsets: Sequence[int], now_ms: int, visible_ms: int
    ) -> tuple[Invisible, list[Delivery]]:
        flights = [self.standing.flights[offset] for offset in offsets]
        lanes = tuple(each.lane for each in flights)
        is_returned = kind is InvisibleKind.RETURNED
        entry = Invisible(
            kind,
            self.key,
            tuple(offsets),
            self.standing.next_serial,
            now_ms,
            visible_ms,
            attempts=tuple(each.attempt - (is_returned and each.is_counted) for each in flights),
            lanes=() if NO_LANE in lanes else lanes,
        )
        return entry, self._hand_out(entry)

    # ------------------------------------------------------------------------------ the queue

    def client_gone(self, client_id: str, now_ms: int) -> None:
        """`held_until_ms` has decreased for this client."""
        self._waits.client_gone(client_id, now_ms)

    def settle(self, ranges: Iterable[Range], now_ms: int) -> Sequence[PopEntry]:
        """Messages are finished without an acknowledgement here: a copy replaced them, or the log
        has lost them. The ranges ascend."""
        standing = self.standing
        rest = [
            Range(max(begin, standing.committed), end)
            for begin, end in ranges
            if end > standing.committed and not standing.finished.covers(begin, end)
        ]
        if not rest:
            return ()
        entry = Finished(self.key, tuple(rest), now_ms)
        self._finish(entry)
        self._next_offset = max(self._next_offset, standing.committed)
        self._known_end = max(self._known_end, rest[-1].end)
        return (entry,)

    def begin_again(self, offset: int, now_ms: int) -> Sequence[PopEntry]:
        """Consumption continues from here, forward or backward; all deliveries are void."""
        serial = max(self.standing.next_serial, first_serial(now_ms))
        entry = Begun(self.key, offset, serial, now_ms)
        self.standing.apply(entry)
        self._polls.clear()
        self.resume(self.standing)
        return (entry,)

    # ------------------------------------------------------------------------------ inside

    def _hand_out(self, entry: Invisible) -> list[Delivery]:
        self.standing.apply(entry)
        flights, watch = self.standing.flights, self._waits.watch
        if self._ready or self._aside:  # most messages are handed out for the first time
            for offset in entry.offsets:
                self._ready.discard(offset)
                self._aside.discard(offset)
        found = []
        for offset in entry.offsets:
            flight = flights[offset]
            watch(offset, flight)
            found.append(Delivery(offset, flight.serial, flight.attempt, flight.visible_ms))
        return found

    def _finish(self, entry: Finished) -> None:
        for begin, end in entry.ranges:
            self._forget(begin, end)
        for begin, end in entry.ranges:
            self._ready.forget(begin, end)
            if self._aside:
                self._aside.difference_update(_within(begin, end, self._aside))
        self.standing.apply(entry)

    def _forget(self, begin: int, end: int) -> None:
        flights = self.standing.flights
        for offset in _within(begin, end, flights):
            flight = flights.get(offset)
            if flight is not None and flight.holder:
                self._waits.forget(offset, flight)
        if self.is_ordered:
            for offset in _within(begin, end, self._lanes):
                following = self._lanes.finish(offset)
                if following is not None:
                    self._turn_comes(following)
        if self._moving:
            for offset in [each for each in self._moving if begin <= each < end]:
                del self._moving[offset]

    def _turn_comes(self, offset: int) -> None:
        """It is now the first of its lane."""
        flight = self.standing.flights.get(offset)
        if flight is None:
            self._ready.add(offset)
        else:
            self._waits.watch(offset, flight)

    def _expire(self, now_ms: int) -> None:
        for offset in self._waits.due(now_ms):
            if offset not in self._moving:
                self._comes_again(offset)

    def _comes_again(self, offset: int) -> None:
        """Its invisible time is up."""
        if not self.is_ordered or self._lanes.is_first(offset):
            self._ready.add(offset)


def _within(begin: int, end: int, offsets: Collection[int]) -> Iterable[int]:
    """A superset of the offsets that are in a range, in ascending order, or a copy."""
    if end - begin <= len(offsets):
        return range(begin, end)
    return [each for each in offsets if begin <= each < end]
