"""Counts how often messages were given to the listener, in a place that survives the process's
death.

Owns: one buffer, in practice a memory-mapped file, divided into three tables. A worker writes into
its cell what it hands to the listener and clears it when the listener is done, two stores into
memory per call; whatever is in a cell when the process dies was being handled. Messages whose
listener failed are in a second table until they are finished. Queues are in the third, with the
store times of their messages: a message is believed to be the counted one only if it was stored
within these, because another cluster's may have the same queue and offset.
All tables are bounded: what does not fit is counted in memory only.

If several messages were being handled when the process died, one of them may have caused it, and it
is unknown which. So an attempt is counted only for a message that was alone. The others are
suspects: they are redelivered one at a time, and the one that kills the next process is then alone.

    cells of 8 bytes   header | workers: mark + offset, span | failed: mark + offset, span,
                       attempts, stored from, until, 1 if in hand at a death | queues: from, until,
                       name's length, name

Invariants: a mark is the number of a queue, from 1, times 2**47; 0 means none. Finished messages
are in no table. PURE except for the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aerobee.client_core.message import ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.process_queue import Entry
from aerobee.store.format.record import RecordCorrupt

MAGIC = 0x41_45_52_4F_41_54_54_31
WORKERS_MAX = 1_024
FAILED_MAX = 2_048
QUEUES_MAX = 1_024
DEATHS_MAX = 1_024
_QUEUE_CELLS = 64
_FAILED_CELLS = 6
_WORKERS_AT = 8
_OTHER_WORKERS_AT = _WORKERS_AT - 2
_FAILED_AT = _WORKERS_AT + 2 * WORKERS_MAX
_QUEUES_AT = _FAILED_AT + _FAILED_CELLS * FAILED_MAX
CELLS = _QUEUES_AT + _QUEUE_CELLS * QUEUES_MAX
SIZE = CELLS * 8
"""Size of the buffer in bytes."""
_MARK_SHIFT = 47
_OFFSET_MASK = (1 << _MARK_SHIFT) - 1
_NAME_BYTES_MAX = (_QUEUE_CELLS - 3) * 8
_SPAN_MAX = 4_096
_TIME_END_MS = (1 << 63) - 1
DIED = "ProcessDied", "the consumer's process ended while its listener had the message"


@dataclass(frozen=True, slots=True)
class Counted:
    """A message that was given to a listener and not finished."""

    queue: MessageQueue
    offset: int
    attempts: int
    stored_from_ms: int
    stored_until_ms: int
    is_reported: bool = False
    """Whether the queue's broker also knows this count."""
    is_suspect: bool = False
    """Whether a process died while it was being handled: it is then handled alone."""
    failure: tuple[str, str] = DIED
    """Class and text of why it failed last."""

    def is_of(self, store_timestamp_ms: int) -> bool:
        """Whether a message at this offset, stored at this time, can be the counted one."""
        return self.stored_from_ms <= store_timestamp_ms <= self.stored_until_ms


class Attempts:
    """The tables of one consumer; see the module."""

    def __init__(self, buffer: memoryview | bytearray | None = None) -> None:
        self.cells: memoryview
        """For workers, who use nothing else; see `worker_cell`."""
        self._marks: dict[MessageQueue, int] = {}
        self._slots: dict[int, int] = {}
        """Of failed messages: mark + offset to the cell."""
        self._free: list[int] = []
        self._past: dict[MessageQueue, dict[int, Counted]] = {}
        self._deaths: dict[str, None] = {}
        self.use(buffer if buffer is not None else bytearray(SIZE))

    def use(self, buffer: memoryview | bytearray) -> None:
        """Write into this buffer of SIZE bytes from now on; it is cleared first."""
        self.cells = memoryview(buffer).cast("B").cast("q")
        for cell in range(_OTHER_WORKERS_AT, _QUEUES_AT):
            if self.cells[cell]:
                self.cells[cell] = 0
        self._marks.clear()
        self._slots.clear()
        ends = range(_QUEUES_AT - _FAILED_CELLS, _FAILED_AT - 1, -_FAILED_CELLS)
        self._free = list(ends)
        self.cells[0] = MAGIC

    def let_go(self) -> None:
        """Leave the buffer as it is and release it. Anything counted from now on is lost, and a
        worker that still has the old cells is refused."""
        self.cells.release()
        self.cells = memoryview(bytearray(SIZE)).cast("q")

    # ------------------------------------------------------------------------------ in hand

    @staticmethod
    def worker_cell(number: int) -> int:
        """The cell of a worker; the next one has the span of its batch. Workers beyond the table
        share the header's last cells, which only show that there are some."""
        return _WORKERS_AT + 2 * number if number < WORKERS_MAX else _OTHER_WORKERS_AT

    def mark(self, queue: MessageQueue) -> int:
        """Added to an offset, it names a message of this queue; 0: there is no room for the
        queue."""
        known = self._marks.get(queue)
        if known is not None:
            return known
        number = len(self._marks) + 1
        name = "\n".join((queue.topic, queue.broker_name, str(queue.queue_id))).encode()
        if number > QUEUES_MAX or len(name) > _NAME_BYTES_MAX:
            return 0
        at = _queue_cell(number)
        self.cells[at] = self.cells[at + 1] = 0
        self.cells[at + 2] = len(name)
        padded = name.ljust(-(-len(name) // 8) * 8, b"\0")
        for index in range(len(padded) // 8):
            word = int.from_bytes(padded[index * 8 : index * 8 + 8], "little", signed=True)
            self.cells[at + 3 + index] = word
        mark = self._marks[queue] = number << _MARK_SHIFT
        return mark

    def on_received(self, mark: int, first_ms: int, last_ms: int) -> None:
        """Messages arrived that were stored between these times."""
        if mark:
            at = _queue_cell(mark >> _MARK_SHIFT)
            known_from, known_until = self.cells[at], self.cells[at + 1]
            self.cells[at] = min(known_from or first_ms, first_ms, last_ms)
            self.cells[at + 1] = max(known_until, first_ms, last_ms)

    def nothing_in_hand(self) -> None:
        """The workers have ended in order."""
        for cell in range(_OTHER_WORKERS_AT, _FAILED_AT):
            if self.cells[cell]:
                self.cells[cell] = 0

    # ------------------------------------------------------------------------------ failed

    def on_failed(self, mark: int, first: int, last: int, attempts: int) -> None:
        """These messages were given to the listener this many times, and are not finished."""
        if mark:
            at = _queue_cell(mark >> _MARK_SHIFT)
            from_ms, until_ms = self.cells[at], self.cells[at + 1]
            self._note(mark + first, last - first, attempts, from_ms, until_ms, is_suspect=False)

    def on_finished(self, queue: MessageQueue, mark: int, offsets: Sequence[int]) -> None:
        """These no longer need a count."""
        past = self._past.get(queue)
        for offset in offsets:
            self._forget(mark + offset)
            if past is not None:
                past.pop(offset, None)

    def _note(
        self, name: int, span: int, attempts: int, from_ms: int, until_ms: int, *, is_suspect: bool
    ) -> None:
        at = self._slots.pop(name, 0)
        if not at:
            if not self._free:
                self._forget(next(iter(self._slots)))
            at = self._free.pop()
        self._slots[name] = at
        self.cells[at] = 0
        self.cells[at + 1], self.cells[at + 2] = span, attempts
        self.cells[at + 3], self.cells[at + 4] = from_ms, until_ms
        self.cells[at + 5] = int(is_suspect)
        self.cells[at] = name

    def _forget(self, name: int) -> None:
        at = self._slots.pop(name, 0)
        if at:
            self.cells[at] = 0
            self._free.append(at)

    # ------------------------------------------------------------------------------ the past

    def inherit(self, counted: Sequence[Counted]) -> None:
        """Continue the counts that a consumer that is gone has left."""
        for each in counted:
            past = self._past.setdefault(each.queue, {})
            known = past.get(each.offset)
            if known is not None and _weight(known) >= _weight(each):
                continue
            past[each.offset] = each
            mark = self.mark(each.queue)
            if mark:
                name = mark + each.offset
                from_ms, until_ms = each.stored_from_ms, each.stored_until_ms
                self._note(name, 0, each.attempts, from_ms, until_ms, is_suspect=each.is_suspect)

    def past_of(self, queue: MessageQueue, start_offset: int) -> dict[int, Counted]:
        """By offset, what was counted on a queue that is read from here on; anything earlier is
        finished. The same object as long as the queue is owned."""
        past = self._past.setdefault(queue, {})
        done = [offset for offset in past if offset < start_offset]
        self.on_finished(queue, self.mark(queue), done)
        return past

    def know(self, queue: MessageQueue, offset: int, attempts: int) -> None:
        """The queue's broker has this count; the one here may be newer."""
        past = self._past.setdefault(queue, {})
        known = past.get(offset)
        if known is None or known.attempts <= attempts:
            counted = Counted(queue, offset, attempts, 0, _TIME_END_MS, is_reported=True)
            is_suspect = known is not None and known.is_suspect
            past[offset] = replace(counted, is_suspect=is_suspect)

    def sent_back(self, counted: Counted, origin_message_id: str) -> None:
        """A process died handling this message, and its broker is being told: it is a suspect when
        it is redelivered. Only this process remembers that; another one needs one more death in
        company."""
        self._deaths[origin_message_id] = None
        if len(self._deaths) > DEATHS_MAX:
            del self._deaths[next(iter(self._deaths))]
        reported = replace(counted, attempts=0, is_reported=True)
        self._past.setdefault(counted.queue, {})[counted.offset] = reported

    def on_unanswered(
        self,
        queue: MessageQueue,
        entries: Sequence[Entry[ReceivedMessage]],
        attempts: int,
        failure: tuple[str, str],
    ) -> None:
        """The queue was lost before its broker had answered that it counted these. If it comes
        back, that is reported before anything else."""
        past = self._past.setdefault(queue, {})
        for offset, _, message in entries:
            stored_ms = message.store_timestamp_ms
            past[offset] = Counted(queue, offset, attempts, stored_ms, stored_ms, failure=failure)

    def reported(self, counted: Counted) -> None:
        """Its broker is being told of this count."""
        past = self._past.setdefault(counted.queue, {})
        past[counted.offset] = replace(counted, is_reported=True)

    def on_came(self, queue: MessageQueue, entries: Sequence[Entry[ReceivedMessage]]) -> None:
        """Find among these what was sent back."""
        if not self._deaths:
            return
        for offset, _, message in entries:
            try:
                origin, stored_ms = message.origin_message_id, message.store_timestamp_ms
            except RecordCorrupt:
                continue
            if origin in self._deaths:
                suspect = Counted(queue, offset, 0, stored_ms, stored_ms, is_suspect=True)
                self.inherit([suspect])
                del self._deaths[origin]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is being handled or has failed."""
        return not self._slots and not any(self.cells[_WORKERS_AT:_FAILED_AT:2])


def counted_in(buffer: memoryview | bytes) -> list[Counted]:
    """What the buffer of a consumer that died contains; nothing if it is not such a buffer."""
    if len(buffer) != SIZE:
        return []
    cells = memoryview(buffer).cast("B").cast("q")
    if cells[0] != MAGIC:
        return []
    found = {(each.queue, each.offset): each for each in _failed_in(cells)}
    in_hand = list(_in_hand_in(cells))
    calls = sum(1 for at in range(_OTHER_WORKERS_AT, _FAILED_AT, 2) if cells[at])
    died_of = 1 if calls == len(in_hand) == 1 else 0
    for each in in_hand:
        known = found.get((each.queue, each.offset), each)
        found[each.queue, each.offset] = replace(
            each,
            attempts=known.attempts + died_of,
            stored_from_ms=known.stored_from_ms,
            stored_until_ms=max(known.stored_until_ms, each.stored_until_ms),
        )
    return list(found.values())


def _weight(counted: Counted) -> tuple[int, bool]:
    """Sort key for two files' entries about one message: the one that has seen more of it is
    right."""
    return counted.attempts, counted.is_suspect


def _failed_in(cells: memoryview) -> Iterator[Counted]:
    for at in range(_FAILED_AT, _QUEUES_AT, _FAILED_CELLS):
        if cells[at] and (queue := _queue_in(cells, cells[at])) is not None:
            for offset in _offsets(cells[at], cells[at + 1]):
                times = cells[at + 3], cells[at + 4]
                suspect = bool(cells[at + 5])
                yield Counted(queue, offset, cells[at + 2], *times, is_suspect=suspect)


def _in_hand_in(cells: memoryview) -> Iterator[Counted]:
    for at in range(_WORKERS_AT, _FAILED_AT, 2):
        if cells[at] and (queue := _queue_in(cells, cells[at])) is not None:
            queue_at = _queue_cell(cells[at] >> _MARK_SHIFT)
            for offset in _offsets(cells[at], cells[at + 1]):
                times = cells[queue_at], cells[queue_at + 1]
                yield Counted(queue, offset, 0, *times, is_suspect=True)


def _offsets(name: int, span: int) -> range:
    first = name & _OFFSET_MASK
    return range(first, first + 1 + min(max(span, 0), _SPAN_MAX))


def _queue_in(cells: memoryview, name: int) -> MessageQueue | None:
    number = name >> _MARK_SHIFT
    if not 1 <= number <= QUEUES_MAX:
        return None
    at = _queue_cell(number)
    length = cells[at + 2]
    if not 0 < length <= _NAME_BYTES_MAX:
        return None
    words = cells[at + 3 : at + 3 + -(-length // 8)]
    text = b"".join(word.to_bytes(8, "little", signed=True) for word in words)[:length]
    parts = text.decode("utf-8", "replace").split("\n")
    if len(parts) != 3 or not parts[2].isdigit():
        return None
    return MessageQueue(parts[0], parts[1], int(parts[2]))


def _queue_cell(number: int) -> int:
    return _QUEUES_AT + _QUEUE_CELLS * (number - 1)
