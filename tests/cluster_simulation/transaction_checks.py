"""What must always hold of transactions (I13 to I15).

Judged by the confirmed log alone, record by record, by what clients asked for and what they were
told: what the product knows of a transaction is looked at once, at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store_format.delayed_records import HALF_TOPIC
from aerobee.store_format.record_view import Record as StoredRecord
from aerobee.store_format.transaction_records import OP_TOPIC, Outcome, half_of, op_of
from tests.cluster_simulation.log import Record
from tests.cluster_simulation.transacting import SAGAS
from tests.cluster_simulation.violation import Violation

if TYPE_CHECKING:
    from tests.cluster_simulation.broker import Broker
    from tests.cluster_simulation.world import World

_ENDS = (Outcome.COMMITTED, Outcome.ROLLED_BACK)


class TransactionChecks:
    """Its methods raise Violation."""

    def __init__(self, world: World, asked: set[tuple[int, Outcome]] | None = None) -> None:
        """`asked`: what clients asked for earlier."""
        self._world = world
        self.asked = set() if asked is None else asked
        self._halves: dict[int, int] = {}
        """Offset of a half message -> its transaction."""
        self._waiting: dict[int, set[int]] = {}
        """Transaction -> its half messages that are not done."""
        self._outcomes: dict[int, Outcome] = {}
        """As the op messages have it."""
        self._visible: set[int] = set()
        self._told_stored: set[int] = set()

    # ------------------------------------------------------------------------------ the log

    def confirmed(self, place: tuple[str, int], record: Record) -> None:
        """One record more of a queue by name is confirmed."""
        topic, stored = place[0], record.data
        if topic == HALF_TOPIC:
            self._half(stored.record)
        elif topic == OP_TOPIC:
            self._done(stored.record)
        elif topic == SAGAS:
            self._comes(stored.record)

    def _half(self, record: StoredRecord) -> None:
        number = _number_of(record)
        self._world.note("half message %s of transaction %s", record.queue_offset, number)
        self._halves[half_of(record).offset] = number
        self._waiting.setdefault(number, set()).add(record.queue_offset)
        self._world.checks.figures.halves += 1

    def _done(self, record: StoredRecord) -> None:
        offsets, outcome = op_of(record)
        for offset in offsets:
            number = self._halves.get(offset)
            if number is None:
                raise Violation(f"I14: an op message names half message {offset}, which is none")
            self._world.note("transaction %s is done: %s at %s", number, outcome, offset)
            self._waiting[number].discard(offset)
            if outcome not in _ENDS:
                continue
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
        if number in self._visible:
            raise Violation(f"I13: the message of transaction {number} is visible twice")
        if number in self._outcomes:
            raise Violation(f"I13: transaction {number} had ended, and its message comes")
        if not self._waiting.get(number):
            raise Violation(f"I13: no half message of transaction {number} waits")
        if (number, Outcome.COMMITTED) not in self.asked:
            raise Violation(f"I13: nobody has committed transaction {number}")
        self._world.note("the message of transaction %s comes", number)
        self._visible.add(number)
        self._world.checks.figures.committed += 1

    # ------------------------------------------------------------------------------ clients

    def asks(self, number: int, outcome: Outcome) -> None:
        """A client's call has come to a broker."""
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
        if not self._counts(broker):
            return
        self._world.note("%s says: transaction %s is %s", broker.instance, number, outcome)
        known = self._outcomes.get(number)
        # The log's end of a commit may come a moment after its message.
        if outcome is Outcome.COMMITTED:
            is_so = number in self._visible
        elif outcome is Outcome.ROLLED_BACK:
            is_so = known is outcome
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
        """Whether what a broker says is said of this log."""
        return broker.epoch >= self._world.checks.lossy_epoch

    # ------------------------------------------------------------------------------ the end

    def waiting(self) -> list[int]:
        """The transactions that have not ended."""
        return [number for number, offsets in self._waiting.items() if offsets]

    def missing(self, master: Broker) -> str:
        """What has not ended yet; empty when all has, and the master knows it."""
        if waiting_for := self.waiting():
            return f"transactions {waiting_for} wait"
        waiting = master.waiting
        if waiting is not None and waiting.transacting is not None:
            pending = waiting.transacting.pending
            if len(pending):
                return f"{master.instance} believes that {len(pending)} transactions are open"
        return ""


def _number_of(record: StoredRecord) -> int:
    return int(bytes(record.body))
