"""PURE: which half messages wait for the end of their transaction.

Fed with the confirmed records of the half topic and of the op topic, each in order, but the two
interleaved in any way: an op message read before the half message that it names takes effect when
that arrives. So all replicas that have read both to the same place have the same state.

Owns: what waits, by offset and by transaction; what has ended recently, and how; and how far the
two topics need not be read again. Records of one transaction are one message: a half message that
was sent twice, or stored again for a check, ends together with the other. Two different messages
with one id, which Apache's broker may have stored, are two transactions.

What was set aside is tracked in the same way, from one topic: its records wait until an operator
decides, and are marked done by op messages among them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from typing import Final, NamedTuple

from aerobee.store.format.message_content import another_id
from aerobee.store.format.transaction_records import HalfMessage, Outcome

ENDED_MAX: Final = 20_000
"""Transactions that are remembered after their end. For older ones the index is used."""


class TransactionName(NamedTuple):
    """A topic's transaction; clients assign the ids."""

    topic: str
    transaction_id: str


class Ended(NamedTuple):
    """`half` is the record that was marked done last."""

    outcome: Outcome
    half: HalfMessage


def name_of(half: HalfMessage) -> TransactionName:
    """The transaction of a half message."""
    return TransactionName(half.topic, half.transaction_id)


class PendingHalves:
    """What one replica knows."""

    def __init__(self, *, next_half: int = 0, next_op: int = 0, ended_max: int = ENDED_MAX) -> None:
        """Begins with these offsets of the two topics: everything before is done."""
        self.next_half = next_half
        self.next_op = next_op
        self._ended_max = ended_max
        self._waiting: dict[int, HalfMessage] = {}
        """By offset, ascending."""
        self._by_name: dict[TransactionName, list[int]] = {}
        self._replaced: dict[TransactionName, list[int]] = {}
        """Records replaced by a newer one, not yet named by an op message."""
        self._replaced_at: dict[int, TransactionName] = {}
        self._topics: Counter[str] = Counter()
        self._ended: OrderedDict[TransactionName, Ended] = OrderedDict()
        self._early: dict[int, Outcome] = {}
        """Marked done before they were read."""
        self._ops: deque[tuple[int, int]] = deque()
        """Op messages that may still be needed: offset, and the last half message that it names."""

    def __repr__(self) -> str:
        return f"PendingHalves({len(self)} wait, read to {self.next_half} and {self.next_op})"

    def __len__(self) -> int:
        """The number of waiting transactions."""
        return len(self._by_name)

    def __iter__(self) -> Iterator[HalfMessage]:
        """In order of offset."""
        return iter(self._waiting.values())

    # ------------------------------------------------------------------------------ asking

    @property
    def oldest(self) -> HalfMessage | None:
        """The first waiting one."""
        return next(iter(self._waiting.values()), None)

    def of(self, name: TransactionName) -> list[HalfMessage]:
        """The waiting records of a transaction, newest last; empty: it does not wait."""
        return [self._waiting[offset] for offset in self._by_name.get(name, ())]

    def offsets(self, name: TransactionName) -> list[int]:
        """All offsets that the op message of a transaction must name."""
        return [*self._replaced.get(name, ()), *self._by_name.get(name, ())]

    def at(self, offset: int) -> HalfMessage | None:
        """The record at an offset, if it is waiting."""
        return self._waiting.get(offset)

    @property
    def names(self) -> KeysView[TransactionName]:
        """The names of the waiting ones."""
        return self._by_name.keys()

    def all_offsets(self) -> list[int]:
        """The offsets of all waiting records, ascending."""
        return list(self._waiting)

    @property
    def by_topic(self) -> Mapping[str, int]:
        """How many transactions of each topic are waiting."""
        return self._topics

    def ended(self, name: TransactionName) -> Ended | None:
        """How a transaction ended, if that is remembered."""
        return self._ended.get(name)

    @property
    def half_progress(self) -> int:
        """Every record of the half topic before this one is done."""
        oldest = self.oldest
        return self.next_half if oldest is None else oldest.offset

    @property
    def op_progress(self) -> int:
        """No op message before this one names a half message at `half_progress` or after."""
        self._drop_ops()
        return self._ops[0][0] if self._ops else self.next_op

    def _drop_ops(self) -> None:
        progress = self.half_progress
        while self._ops and self._ops[0][1] < progress:
            self._ops.popleft()

    # ------------------------------------------------------------------------------ reading

    def read_half(self, half: HalfMessage) -> None:
        """The next record of the half topic."""
        assert half.offset >= self.next_half, "records count in the order of their queue"
        self.next_half = half.offset + 1
        half = self._told_apart(half)
        name = name_of(half)
        if half.is_copy:
            self._replace(name)
        early = self._early.pop(half.offset, None)
        if early is not None:
            if name not in self._by_name:
                self._forget_replaced(name)
            self._note_ended(half, early)
            return
        self._waiting[half.offset] = half
        offsets = self._by_name.setdefault(name, [])
        if not offsets:
            self._topics[name.topic] += 1
        offsets.append(half.offset)

    def _told_apart(self, half: HalfMessage) -> HalfMessage:
        while (waiting := self.of(name_of(half))) and waiting[-1].content != half.content:
            half = half._replace(transaction_id=another_id(half.transaction_id, half.content))
        return half

    def skip_half(self, offset: int) -> None:
        """The record at an offset of the half topic is not a half message, or cannot be read."""
        self.next_half = max(self.next_half, offset + 1)
        self._early.pop(offset, None)

    def read_op(self, op_offset: int, offsets: Sequence[int], outcome: Outcome) -> None:
        """The next record of the op topic."""
        assert op_offset >= self.next_op, "records count in the order of their queue"
        self.next_op = op_offset + 1
        if not offsets:
            return
        self._ops.append((op_offset, max(offsets)))
        for offset in offsets:
            half = self._waiting.get(offset)
            if half is not None:
                self._forget(offset)
                self._note_ended(half, outcome)
            elif offset >= self.next_half:
                self._early[offset] = outcome
            elif (name := self._replaced_at.pop(offset, None)) is not None:
                self._replaced[name].remove(offset)
        self._drop_ops()

    def lose_before(self, offset: int) -> Iterable[HalfMessage]:
        """The half topic begins at this offset now: drops and returns what waited before it."""
        lost = [half for half in self._waiting.values() if half.offset < offset]
        for half in lost:
            self._forget(half.offset)
        self.next_half = max(self.next_half, offset)
        return lost

    def _replace(self, name: TransactionName) -> None:
        older, replaced = self._by_name.get(name, ())[:], self._replaced.pop(name, [])
        for offset in older:
            self._forget(offset)
            self._replaced_at[offset] = name
        if replaced or older:
            self._replaced[name] = [*replaced, *older]

    def _forget_replaced(self, name: TransactionName) -> None:
        for offset in self._replaced.pop(name, ()):
            del self._replaced_at[offset]

    def _forget(self, offset: int) -> None:
        half = self._waiting.pop(offset)
        name = name_of(half)
        offsets = self._by_name[name]
        offsets.remove(offset)
        if not offsets:
            del self._by_name[name]
            self._forget_replaced(name)
            self._topics[name.topic] -= 1
            if not self._topics[name.topic]:
                del self._topics[name.topic]

    def _note_ended(self, half: HalfMessage, outcome: Outcome) -> None:
        if outcome is Outcome.CHECKED:
            return
        name = name_of(half)
        self._ended.pop(name, None)
        self._ended[name] = Ended(outcome, half)
        if len(self._ended) > self._ended_max:
            self._ended.popitem(last=False)
