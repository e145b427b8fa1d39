"""How often messages were given to the listener, where the death of the process does not take it.

Owns: one buffer, a file mapped into memory in practice, of which three tables are made. A worker
writes into its cell what it hands to the listener and takes it out when the listener is done, two
stores into memory for a call; what stands there when the process dies was in the listener's hands.
Messages whose listener failed stand in a second table until they are finished. Queues stand in the
third, with the times of what came from them: a message is only believed to be the one that was
counted if it was stored within these, for another cluster's may have the same queue and offset.
All tables are bounded: what does not fit is counted in memory alone.

    cells of 8 bytes   header | workers: mark + offset, span | failed: mark + offset, span,
                       attempts, stored from, until, 0 | queues: from, until, name's length, name

Invariants: a mark is the number of a queue, from 1, times 2**47; 0 is nobody. What is finished
stands nowhere. PURE but for the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue

MAGIC = 0x41_45_52_4F_41_54_54_31
WORKERS_MAX = 1_024
FAILED_MAX = 2_048
QUEUES_MAX = 1_024
_QUEUE_CELLS = 64
_FAILED_CELLS = 6
_WORKERS_AT = 8
_FAILED_AT = _WORKERS_AT + 2 * WORKERS_MAX
_QUEUES_AT = _FAILED_AT + _FAILED_CELLS * FAILED_MAX
CELLS = _QUEUES_AT + _QUEUE_CELLS * QUEUES_MAX
SIZE = CELLS * 8
"""Of the buffer in bytes."""
_MARK_SHIFT = 47
_OFFSET_MASK = (1 << _MARK_SHIFT) - 1
_NAME_BYTES_MAX = (_QUEUE_CELLS - 3) * 8
_SPAN_MAX = 4_096
_TIME_END_MS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Counted:
    """A message that was given to a listener and not finished."""

    queue: MessageQueue
    offset: int
    attempts: int
    stored_from_ms: int
    stored_until_ms: int
    is_reported: bool = False
    """Whether the broker of the queue has counted so far, too."""

    def is_of(self, store_timestamp_ms: int) -> bool:
        """Whether a message at this place that was stored then can be the one."""
        return self.stored_from_ms <= store_timestamp_ms <= self.stored_until_ms


class Attempts:
    """The tables of one consumer; see the module."""

    def __init__(self, buffer: memoryview | bytearray | None = None) -> None:
        self.cells: memoryview
        """For workers, who look at nothing else; see `worker_cell`."""
        self._marks: dict[MessageQueue, int] = {}
        self._slots: dict[int, int] = {}
        """Of failed messages: mark + offset to the cell."""
        self._free: list[int] = []
        self._past: dict[MessageQueue, dict[int, Counted]] = {}
        self.use(buffer if buffer is not None else bytearray(SIZE))

    def use(self, buffer: memoryview | bytearray) -> None:
        """Write into this buffer of SIZE bytes from now on, which is emptied."""
        self.cells = memoryview(buffer).cast("B").cast("q")
        for cell in range(_WORKERS_AT, _QUEUES_AT):
            if self.cells[cell]:
                self.cells[cell] = 0
        self._marks.clear()
        self._slots.clear()
        ends = range(_QUEUES_AT - _FAILED_CELLS, _FAILED_AT - 1, -_FAILED_CELLS)
        self._free = list(ends)
        self.cells[0] = MAGIC

    def let_go(self) -> None:
        """Leave the buffer as it is and hold it no longer. What is counted from now on is lost, and
        a worker that still has the old cells is refused."""
        self.cells.release()
        self.cells = memoryview(bytearray(SIZE)).cast("q")

    # ------------------------------------------------------------------------------ in hand

    @staticmethod
    def worker_cell(number: int) -> int:
        """The cell of a worker; the next one has the span of its batch. Those beyond the table
        share the header's last ones, which nobody reads."""
        return _WORKERS_AT + 2 * number if number < WORKERS_MAX else _WORKERS_AT - 2

    def mark(self, queue: MessageQueue) -> int:
        """What is added to an offset to name a message of this queue; 0: it finds no room."""
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
        """Messages came that were stored between these times."""
        if mark:
            at = _queue_cell(mark >> _MARK_SHIFT)
            known_from, known_until = self.cells[at], self.cells[at + 1]
            self.cells[at] = min(known_from or first_ms, first_ms, last_ms)
            self.cells[at + 1] = max(known_until, first_ms, last_ms)

    def nothing_in_hand(self) -> None:
        """The workers have ended in order."""
        for cell in range(_WORKERS_AT, _FAILED_AT):
            if self.cells[cell]:
                self.cells[cell] = 0

    # ------------------------------------------------------------------------------ failed

    def on_failed(self, mark: int, first: int, last: int, attempts: int) -> None:
        """These messages were given to the listener so often, and are not finished."""
        if mark:
            at = _queue_cell(mark >> _MARK_SHIFT)
            self._note(mark + first, last - first, attempts, self.cells[at], self.cells[at + 1])

    def on_finished(self, queue: MessageQueue, mark: int, offsets: Sequence[int]) -> None:
        """These need no count any more."""
        past = self._past.get(queue)
        for offset in offsets:
            self._forget(mark + offset)
            if past is not None:
                past.pop(offset, None)

    def _note(self, name: int, span: int, attempts: int, from_ms: int, until_ms: int) -> None:
        at = self._slots.pop(name, 0)
        if not at:
            if not self._free:
                self._forget(next(iter(self._slots)))
            at = self._free.pop()
        self._slots[name] = at
        self.cells[at] = 0
        self.cells[at + 1], self.cells[at + 2] = span, attempts
        self.cells[at + 3], self.cells[at + 4] = from_ms, until_ms
        self.cells[at] = name

    def _forget(self, name: int) -> None:
        at = self._slots.pop(name, 0)
        if at:
            self.cells[at] = 0
            self._free.append(at)

    # ------------------------------------------------------------------------------ the past

    def inherit(self, counted: Sequence[Counted]) -> None:
        """Go on counting what a consumer that is gone left."""
        for each in counted:
            past = self._past.setdefault(each.queue, {})
            known = past.get(each.offset)
            if known is not None and known.attempts >= each.attempts:
                continue
            past[each.offset] = each
            mark = self.mark(each.queue)
            if mark:
                name = mark + each.offset
                self._note(name, 0, each.attempts, each.stored_from_ms, each.stored_until_ms)

    def past_of(self, queue: MessageQueue, start_offset: int) -> dict[int, Counted]:
        """By offset, what was counted on a queue that is read from here on; the rest is finished.
        The same object as long as the queue is owned."""
        past = self._past.setdefault(queue, {})
        done = [offset for offset in past if offset < start_offset]
        self.on_finished(queue, self.mark(queue), done)
        return past

    def know(self, queue: MessageQueue, offset: int, attempts: int) -> None:
        """The queue's broker has counted so far; what is written here may be newer."""
        past = self._past.setdefault(queue, {})
        known = past.get(offset)
        if known is None or known.attempts <= attempts:
            past[offset] = Counted(queue, offset, attempts, 0, _TIME_END_MS, is_reported=True)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in hand or has failed."""
        return not self._slots and not any(self.cells[_WORKERS_AT:_FAILED_AT:2])


def counted_in(buffer: memoryview | bytes) -> list[Counted]:
    """What the buffer of a consumer that died says; nothing if it is no such buffer."""
    if len(buffer) != SIZE:
        return []
    cells = memoryview(buffer).cast("B").cast("q")
    if cells[0] != MAGIC:
        return []
    found: dict[tuple[MessageQueue, int], Counted] = {}
    for each in (*_failed_in(cells), *_in_hand_in(cells)):
        place = each.queue, each.offset
        known = found.get(place)
        if known is None:
            found[place] = each
        elif each.attempts == 0:
            # In hand for another time.
            found[place] = Counted(
                each.queue,
                each.offset,
                known.attempts + 1,
                known.stored_from_ms,
                max(known.stored_until_ms, each.stored_until_ms),
            )
    return [
        each
        if each.attempts
        else Counted(each.queue, each.offset, 1, each.stored_from_ms, each.stored_until_ms)
        for each in found.values()
    ]


def _failed_in(cells: memoryview) -> Iterator[Counted]:
    for at in range(_FAILED_AT, _QUEUES_AT, _FAILED_CELLS):
        if cells[at] and (queue := _queue_in(cells, cells[at])) is not None:
            for offset in _offsets(cells[at], cells[at + 1]):
                yield Counted(queue, offset, cells[at + 2], cells[at + 3], cells[at + 4])


def _in_hand_in(cells: memoryview) -> Iterator[Counted]:
    for at in range(_WORKERS_AT, _FAILED_AT, 2):
        if cells[at] and (queue := _queue_in(cells, cells[at])) is not None:
            queue_at = _queue_cell(cells[at] >> _MARK_SHIFT)
            for offset in _offsets(cells[at], cells[at + 1]):
                yield Counted(queue, offset, 0, cells[queue_at], cells[queue_at + 1])


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
