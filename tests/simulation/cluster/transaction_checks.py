"""Invariants of transactions (I13 to I15).

Judged only by the confirmed log, record by record, by what clients requested and what they were
told; the product's own state of a transaction is checked once, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aerobee.broker.sending.halves import HALF_QUEUE
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.record_view import Record as StoredRecord
from aerobee.store.format.transaction_records import (
    ASIDE_TOPIC,
    OP_TOPIC,
    Outcome,
    half_of,
    is_op_of_aside,
    op_of,
)
from tests.simulation.cluster.log import QueueId, Record
from tests.simulation.cluster.transacting import CHECKS_MAX, SAGAS
from tests.simulation.judge import Judge, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker
    from tests.simulation.cluster.world import World

_ENDS = (Outcome.COMMITTED, Outcome.ROLLED_BACK)


class TransactionChecks:
    """Its methods raise Violation."""

    def __init__(self, world: World, asked: set[tuple[int, Outcome]] | None = None) -> None:
        """`asked`: what clients requested earlier."""
        self._world = world
        self.asked = set() if asked is None else asked
        self._halves: dict[int, int] = {}
        """Offset of a half message -> its transaction."""
        self._waiting: dict[int, set[int]] = {}
        """Transaction -> its half messages that are not done."""
        self._outcomes: dict[int, Outcome] = {}
        """According to the op messages."""
        self._aside: dict[int, set[int]] = {}
        """Transaction -> its set-aside records that have not been ended."""
        self._asides: dict[int, int] = {}
        """Offset of such a record -> its transaction."""
        self._ever_aside: set[int] = set()
        self._visible: set[int] = set()
        self._told_stored: set[int] = set()
        self._forgotten: set[int] = set()

    # ------------------------------------------------------------------------------ the log

    def confirmed(self, place: tuple[str, int], record: Record) -> None:
        """One more record of a named queue is confirmed."""
        topic, stored = place[0], record.data
        if topic == HALF_TOPIC:
            self._half(stored.record)
        elif topic == OP_TOPIC:
            self._done(stored.record, self._halves, self._waiting)
        elif topic == ASIDE_TOPIC and is_op_of_aside(stored.record):
            self._done(stored.record, self._asides, self._aside)
        elif topic == ASIDE_TOPIC:
            self._set_aside(stored.record)
        elif topic == SAGAS:
            self._comes(stored.record)

    def forget_removed(self, begins: Mapping[QueueId, int], before: TransactionChecks) -> None:
        """After a lossy election: retention had removed half messages that were done, and the
        records that marked them done are lost, or in the new master's log, the rest of which is
        judged from now on. `begins`: where its queues begin; `before`: what was known before the
        loss."""
        for topic, waiting, known in (
            (HALF_TOPIC, self._waiting, before._waiting),
            (ASIDE_TOPIC, self._aside, before._aside),
        ):
            begin = begins.get((topic, HALF_QUEUE), 0)
            for number, offsets in waiting.items():
                still = known.get(number, ())
                removed = {each for each in offsets if each < begin and each not in still}
                if removed:
                    offsets -= removed
                    self._forgotten.add(number)

    def _half(self, record: StoredRecord) -> None:
        number, half = _number_of(record), half_of(record)
        self._world.note("half message %s of transaction %s", record.queue_offset, number)
        waiting = self._waiting.setdefault(number, set())
        if half.is_copy:
            has_ended = number in self._outcomes or number in self._visible
            if has_ended or not (waiting or number in self._forgotten):
                raise Violation(f"I14: transaction {number} is checked, and has ended")
            if half.checks > CHECKS_MAX:
                raise Violation(f"I15: transaction {number} is checked {half.checks} times")
            waiting.clear()
            self._world.checks.figures.checks += 1
        self._halves[half.offset] = number
        waiting.add(record.queue_offset)
        self._world.checks.figures.halves += 1

    def _set_aside(self, record: StoredRecord) -> None:
        number = _number_of(record)
        self._world.note("transaction %s is set aside", number)
        is_open = self._waiting.get(number) or number in self._forgotten
        if number in self._outcomes or not is_open:
            raise Violation(f"I14: transaction {number} is set aside, and has ended")
        self._aside.setdefault(number, set()).add(record.queue_offset)
        self._asides[record.queue_offset] = number
        self._ever_aside.add(number)
        self._world.checks.figures.set_aside += 1

    def _done(
        self, record: StoredRecord, numbers: Mapping[int, int], waiting: Mapping[int, set[int]]
    ) -> None:
        offsets, outcome = op_of(record)
        for offset in offsets:
            number = numbers.get(offset)
            if number is None:
                raise Violation(f"I14: an op message names record {offset}, which is none")
            self._world.note("transaction %s is done: %s at %s", number, outcome, offset)
            waiting[number].discard(offset)
            if outcome is Outcome.SET_ASIDE and not self._aside.get(number):
                raise Violation(f"I15: transaction {number} is not among those set aside")
            is_last = outcome is Outcome.CHECKED and not self._waiting.get(number)
            if is_last and number not in self._outcomes:
                raise Violation(f"I15: transaction {number} is done, and has not ended")
            if outcome in _ENDS:
                self._ends(number, outcome)

    def _ends(self, number: int, outcome: Outcome) -> None:
        before = self._outcomes.setdefault(number, outcome)
        if before is not outcome:
            raise Violation(f"I14: transaction {number} ended as {before}, now as {outcome}")
        if (number, outcome) not in self.asked:
            raise Violation(f"I14: nobody asked for {outcome} of transaction {number}")
        if (number in self._visible) is not (outcome is Outcome.COMMITTED):
            raise Violation(
                f"I13: transaction {number} ends as {outcome}, its message is "
                f"{'there' if number in self._visible else 'not there'}"
            )

    def _comes(self, record: StoredRecord) -> None:
        number = _number_of(record)
        Judge("I13").once(self._visible, number, f"the message of transaction {number}")
        if number in self._outcomes:
            raise Violation(f"I13: transaction {number} had ended, and its message comes")
        waiting = self._waiting.get(number) or self._aside.get(number)
        if not waiting and number not in self._forgotten:
            raise Violation(f"I13: no half message of transaction {number} waits")
        if (number, Outcome.COMMITTED) not in self.asked:
            raise Violation(f"I13: nobody has committed transaction {number}")
        self._world.note("the message of transaction %s comes", number)
        self._visible.add(number)
        self._world.checks.figures.committed += 1

    # ------------------------------------------------------------------------------ clients

    def asks(self, number: int, outcome: Outcome) -> None:
        """A client's call has reached a broker."""
        self.asked.add((number, outcome))

    def told_stored(self, broker: Broker, number: int) -> None:
        """A client is told that its half message is stored."""
        if not self._counts(broker):
            return
        if number not in self._waiting:
            raise Violation(f"I15: half message {number} is said to be stored, and is not there")
        self._told_stored.add(number)

    def told_ended(self, broker: Broker, number: int, outcome: Outcome) -> None:
        """A client is told how a transaction has ended."""
        if not self._counts(broker) or number in self._forgotten:
            return
        self._world.note("%s says: transaction %s is %s", broker.instance, number, outcome)
        known = self._outcomes.get(number)
        # The log's end of a commit may come a moment after its message.
        if outcome is Outcome.COMMITTED:
            is_so = number in self._visible
        elif outcome is Outcome.ROLLED_BACK:
            is_so = known is outcome
        elif outcome is Outcome.SET_ASIDE:
            is_so = number in self._ever_aside
        else:
            is_so = known is not None
        if not is_so:
            raise Violation(f"I14: transaction {number} is said to be {outcome}, it is {known}")

    def told_unknown(self, broker: Broker, number: int) -> None:
        """A client is told that there is no such transaction, or nothing left of it."""
        if not self._counts(broker) or number in self._outcomes:
            return
        if number in self._told_stored:
            raise Violation(f"I15: transaction {number} was stored, and is said to be unknown")

    def _counts(self, broker: Broker) -> bool:
        """Whether a broker's answers refer to this log."""
        return broker.epoch >= self._world.checks.lossy_epoch

    # ------------------------------------------------------------------------------ the end

    def waiting(self) -> list[int]:
        """Transactions that have not ended."""
        parts = self._waiting, self._aside
        return [number for part in parts for number, offsets in part.items() if offsets]

    def set_aside(self) -> list[int]:
        """Transactions that an operator must end."""
        return [number for number, offsets in self._aside.items() if offsets]

    def missing(self, master: Broker) -> str:
        """What has not ended yet; empty when all has and the master knows it."""
        if waiting_for := self.waiting():
            return f"transactions {waiting_for} wait"
        waiting = master.waiting
        if waiting is not None and waiting.transacting is not None:
            for state in (waiting.transacting.pending, waiting.transacting.aside):
                if len(state):
                    return f"{master.instance} believes that {len(state)} transactions are open"
        return ""


def _number_of(record: StoredRecord) -> int:
    return int(bytes(record.body))
