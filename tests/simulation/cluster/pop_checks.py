"""Invariants of messages that are consumed by POP (I8 to I12).

Judged only by the confirmed log, record by record, by what clients were told, and by what they
requested; the product's own state of a queue is never used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.records import ImageEnd, read_body
from aerobee.broker.offsets.entries import Entry, OffsetEntry
from aerobee.broker.offsets.sent_back import SentBack
from aerobee.broker.pop.entries import (
    POP_JOURNAL_TOPIC,
    Begun,
    Finished,
    Invisible,
    InvisibleKind,
    PopEntry,
    QueueImage,
    decode_entry,
)
from aerobee.rocketmq_api.rules.handles import ReceiptHandle
from aerobee.store.format.dead_letter_fields import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    Death,
    dead_letter_topic,
)
from aerobee.store.format.properties import PropertyName
from aerobee.store.format.record_view import Record as StoredRecord
from tests.simulation.cluster.log import Record
from tests.simulation.cluster.popping import ATTEMPTS_MAX, KEYS, ORDERED
from tests.simulation.judge import Judge, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker
    from tests.simulation.cluster.world import World

FINISHED, WAITING, ATTEMPTS, CLAIMS = map(Judge, ("I8", "I9", "I10", "I11"))
At = tuple[GroupQueue, int]
"""A message of a queue, for a group."""


@dataclass(slots=True)
class _Delivered:
    """The newest delivery of a message."""

    serial: int
    attempt: int
    visible_ms: int
    """0: while its client is alive."""
    is_counted: bool


@dataclass(slots=True)
class _Queue:
    """A group's queue, according to the confirmed log."""

    has_begun: bool = False
    next_serial: int = 0
    lowest: int = 0
    """The oldest unfinished message."""
    finished: set[int] = field(default_factory=set)
    """Finished messages after it."""
    delivered: dict[int, _Delivered] = field(default_factory=dict)
    lane_of: dict[int, str] = field(default_factory=dict)
    """Lanes of unfinished messages."""
    lanes: dict[str, deque[int]] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
    """How often messages were delivered before they came to the retry topic."""

    def is_finished(self, offset: int) -> bool:
        return offset < self.lowest or offset in self.finished

    def finish(self, offset: int) -> None:
        self.finished.add(offset)
        while self.lowest in self.finished:
            self.finished.remove(self.lowest)
            self.lowest += 1
        self.delivered.pop(offset, None)
        lane = self.lanes[self.lane_of.pop(offset)]
        lane.remove(offset)


class PopChecks:
    """Its methods raise Violation."""

    def __init__(self, world: World, before: PopChecks | None = None) -> None:
        """`before` judged a log that has since lost its end."""
        self._world = world
        self.asked: dict[At, set[int]] = {} if before is None else before.asked
        """Deliveries that a client wanted to finish."""
        self._wanted: set[tuple[At, int]] = set() if before is None else before.all_wanted()
        """Messages, with their names, that a client wanted to finish before the loss. A replica's
        table of offsets may still say that they are finished: it is not cut with the log."""
        self._queues = {key: _Queue() for key in KEYS}
        self._ends: dict[tuple[str, int], int] = {}
        self._told: dict[At, tuple[int, int]] = {}
        """The newest delivery that a client was told of: serial and attempt."""
        self._promised: set[At] = set()
        """Messages reported as finished."""
        self._replaced: set[At] = set()
        """Replaced by a copy, according to the offset journal."""
        self._owed: dict[At, int] = {}
        """Dead letters announced by the offset journal -> the message's name."""
        self._names: dict[tuple[str, int, int], int] = {}
        self._dead: set[tuple[str, int]] = set()

    def all_wanted(self) -> set[tuple[At, int]]:
        """Messages, with their names, that clients wanted to finish up to now."""
        known = ((at, self._name(at)) for at in self.asked)
        return self._wanted | {(at, name) for at, name in known if name is not None}

    def _name(self, at: At) -> int | None:
        """None: no such message is confirmed."""
        key, offset = at
        return self._names.get((key.topic, key.queue_id, offset))

    # ------------------------------------------------------------------------------ the log

    def confirmed(self, place: tuple[str, int], record: Record) -> None:
        """One more record of a named queue is confirmed."""
        topic, queue_id = place
        if topic == POP_JOURNAL_TOPIC:
            self._journalled(record.data.record)
            return
        end = self._ends[place] = record.queue_offset + 1
        if topic.startswith(DEAD_LETTER_PREFIX):
            self._dead.add((topic, _name_of(record)))
            return
        for key in KEYS:
            if (key.topic, key.queue_id) == place:
                message: StoredRecord = record.data.record
                lane = message.property_value(PropertyName.SHARDING_KEY) or ""
                queue = self._queues[key]
                queue.lane_of[end - 1] = lane
                queue.lanes.setdefault(lane, deque()).append(end - 1)
                self._names[topic, queue_id, end - 1] = _name_of(record)
                if topic.startswith(RETRY_PREFIX):
                    queue.failures[end - 1] = message.reconsume_times

    def offsets(self, entries: Iterable[Entry | ImageEnd]) -> None:
        """A record of the offset journal is confirmed."""
        for entry in entries:
            if isinstance(entry, OffsetEntry) and (queue := self._queues.get(entry.key)):
                if entry.change.offset > queue.lowest:
                    raise Violation(f"I12: {entry} passes message {queue.lowest}")
            elif isinstance(entry, SentBack) and entry.key in self._queues:
                self._sent_back(entry)

    def _sent_back(self, entry: SentBack) -> None:
        """A copy replaces the message."""
        if entry.is_repeated:
            return
        at = entry.key, entry.offset
        queue = self._queues[entry.key]
        if queue.is_finished(entry.offset):
            raise Violation(f"I9: {entry}, and the message is finished")
        last = queue.delivered.get(entry.offset)
        if last is None:
            raise Violation(f"I9: {entry}, and nobody has had the message")
        if isinstance(entry.way, Death):
            is_asked = last.serial in self.asked.get(at, ())
            if last.attempt < ATTEMPTS_MAX and not is_asked:
                raise Violation(f"I9: {entry} after {last}")
            if entry.way.attempts != last.attempt:
                raise Violation(f"I10: {entry} after {last}")
            self._owed[at] = self._names[entry.key.topic, entry.key.queue_id, entry.offset]
            self._world.checks.figures.pop_dead_letters += 1
        self._replaced.add(at)
        queue.finish(entry.offset)

    def _journalled(self, record: StoredRecord) -> None:
        entries = read_body(bytes(record.body), decode_entry)
        for entry in cast("list[PopEntry | ImageEnd]", entries):
            if isinstance(entry, ImageEnd):
                continue
            queue = self._queues[entry.key]
            if isinstance(entry, Begun):
                if queue.has_begun or entry.offset != 0:
                    raise Violation(f"I9: {entry}, begun is {queue.has_begun}")
                queue.has_begun = True
                queue.next_serial = entry.serial
            elif isinstance(entry, Invisible):
                self._invisible(entry, queue)
            elif isinstance(entry, Finished):
                for begin, end in entry.ranges:
                    for offset in range(begin, end):
                        self._finished((entry.key, offset), queue)
            elif isinstance(entry, QueueImage):
                self._check_image(entry, queue)
            else:
                raise Violation(f"I9: {entry}, though nobody wants the queue")

    def _invisible(self, entry: Invisible, queue: _Queue) -> None:
        if entry.serial < queue.next_serial:
            raise Violation(f"I11: {entry} has serials of before {queue.next_serial}")
        queue.next_serial = entry.serial + len(entry.offsets)
        for index, offset in enumerate(entry.offsets):
            attempt = entry.attempts[index] if entry.attempts else 1
            is_counted = entry.kind is not InvisibleKind.RETURNED
            new = _Delivered(entry.serial + index, attempt, entry.visible_ms, is_counted)
            self._delivered((entry.key, offset), queue, entry, new)
            queue.delivered[offset] = new

    def _delivered(self, at: At, queue: _Queue, entry: Invisible, new: _Delivered) -> None:
        """One message of an entry."""
        key, offset = at
        last = queue.delivered.get(offset)
        FINISHED.done_for_good(at in self._promised or queue.is_finished(offset), at)
        before = queue.failures.get(offset, 0) if last is None else last.attempt
        if entry.kind is InvisibleKind.RETURNED and last is not None:
            # The delivery did not count. A client that was told of it may get the same number
            # again.
            before -= last.is_counted
            self._told.pop(at, None)
        elif entry.kind is InvisibleKind.TAKEN:
            before += 1
            self._taken(at, queue, entry, new)
        if new.attempt != before:
            raise Violation(f"I10: message {offset} of {key} comes with {entry} after {last}")

    def _taken(self, at: At, queue: _Queue, entry: Invisible, new: _Delivered) -> None:
        """A poll got it."""
        key, offset = at
        last, told = queue.delivered.get(offset), self._told.get(at)
        if told is not None and told[0] < new.serial:
            ATTEMPTS.attempts_rise(new.attempt, told[1], at)
        ATTEMPTS.attempts_end(new.attempt, ATTEMPTS_MAX, at)
        if last is not None and last.visible_ms:
            early_ms = last.visible_ms - max(entry.at_ms, self._world.set_back_ms)
            WAITING.not_early(early_ms, at)
        if key.group == ORDERED:
            first = queue.lanes[queue.lane_of[offset]][0]
            CLAIMS.in_order(first == offset, at, "message group")

    def _finished(self, at: At, queue: _Queue) -> None:
        key, offset = at
        if queue.is_finished(offset):
            return  # by the offset journal
        last = queue.delivered.get(offset)
        if last is None:
            raise Violation(f"I9: message {offset} of {key} is passed over")
        is_valid = last.serial in self.asked.get(at, ()) or (at, self._name(at)) in self._wanted
        CLAIMS.handle_is_valid(is_valid, at)
        queue.finish(offset)
        self._world.checks.figures.errands += 1

    def _check_image(self, entry: QueueImage, queue: _Queue) -> None:
        """It says nothing new, and possibly not yet what the offset journal has finished."""
        is_same = entry.committed <= queue.lowest and all(
            (known := queue.delivered.get(offset)) is None
            or (known.serial, known.attempt) == (flight.serial, flight.attempt)
            for offset, flight in entry.flights
        )
        is_same &= all(
            offset in queue.delivered or (entry.key, offset) in self._replaced
            for offset, _ in entry.flights
        )
        if not is_same:
            raise Violation(f"I9: {entry} differs from what the log says: {queue}")

    # ------------------------------------------------------------------------------ clients

    def asks(self, handle: ReceiptHandle) -> None:
        """A client wants to finish a delivery."""
        self.asked.setdefault(_at(handle), set()).add(handle.serial)

    def told(self, broker: Broker, handle: ReceiptHandle, attempt: int) -> None:
        """A client is told of a delivery, possibly late, by a former master."""
        checks = self._world.checks
        checks.figures.deliveries += 1
        if broker.epoch < checks.lossy_epoch:
            return
        at = _at(handle)
        last = self._told.get(at)
        if last is None or last[0] < handle.serial:
            self._told[at] = handle.serial, attempt

    def acknowledged(self, broker: Broker, handle: ReceiptHandle) -> None:
        """A client is told that its message is finished."""
        checks = self._world.checks
        if broker.epoch >= checks.lossy_epoch:
            self._promised.add(_at(handle))

    # ------------------------------------------------------------------------------ the end

    def missing(self, master: Broker) -> str:
        """What is not done yet; empty when all is. What this master knows to be committed counts:
        after a power failure that may be more than its journal has."""
        for key, queue in self._queues.items():
            end = self._ends.get((key.topic, key.queue_id), 0)
            if queue.lowest < end:
                return f"{key} is finished up to {queue.lowest} of {end}: {queue.delivered}"
            standing = master.derived.journal.standing(key)
            committed = 0 if standing is None else standing.offset
            if committed < queue.lowest:
                return f"{key} is committed up to {committed} of {queue.lowest}"
        for (key, offset), name in self._owed.items():
            if (dead_letter_topic(key.group), name) not in self._dead:
                return f"message {offset} of {key} is no dead letter"
        return ""


def _at(handle: ReceiptHandle) -> At:
    return GroupQueue(handle.group, handle.topic, handle.queue_id), handle.queue_offset


def _name_of(record: Record) -> int:
    return int(bytes(record.data.record.body))
