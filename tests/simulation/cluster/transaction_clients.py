"""A producer of transactions, and another client of its group that contradicts it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from aerobee.runtime.errors import AerobeeError, MessageNotFound
from aerobee.store.format.transaction_records import Outcome
from tests.simulation.cluster.broker import Broker
from tests.simulation.cluster.kernel import Place, Process

if TYPE_CHECKING:
    from tests.simulation.cluster.world import World

BEGIN_PAUSE_S: Final = 0.15
RETRY_S: Final = 0.6


class Plan(Enum):
    """What its producer plans for a transaction."""

    COMMIT = auto()
    ROLL_BACK = auto()
    BOTH = auto()
    """Two clients end it at the same time."""
    LEAVE = auto()
    """It is ended only when a broker asks."""
    FORGET = auto()
    """It is never ended: an operator decides."""


_PLANS: Final = (
    Plan.COMMIT,
    Plan.ROLL_BACK,
    Plan.COMMIT,
    Plan.BOTH,
    Plan.COMMIT,
    Plan.LEAVE,
    Plan.ROLL_BACK,
    Plan.FORGET,
)


@dataclass(slots=True)
class _Saga:
    number: int
    plan: Plan
    is_stored: bool = False
    """As reported by a broker."""


class TransactionClient(Process):
    """Begins transactions, and follows each until it has ended."""

    __slots__ = ("_open", "_world", "is_over")

    def __init__(self, world: World, place: Place) -> None:
        super().__init__(place)
        self._world = world
        self._open: dict[int, _Saga] = {}
        self.is_over = False
        """All faults are over: nothing new begins, every question is answered, and an operator ends
        what was set aside."""
        world.kernel.after(BEGIN_PAUSE_S, self, TransactionClient._begin)
        world.kernel.after(RETRY_S, self, TransactionClient._look_back)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def _begin(self) -> None:
        if self.is_over:
            return
        world = self._world
        number = world.next_message_id()
        saga = self._open[number] = _Saga(number, _plan_of(number))
        self._go_on(saga)
        pause_s = world.waiting_chance.choice((0.5, 1.0, 3.0)) * BEGIN_PAUSE_S
        world.kernel.after(pause_s, self, TransactionClient._begin)

    def _look_back(self) -> None:
        """At the end an operator looks at what was set aside."""
        if self.is_over:
            for number in self._world.checks.transactions.set_aside():
                self._tell(_end, number, _ends_as(number), True)
        self._world.kernel.after(4 * RETRY_S, self, TransactionClient._look_back)

    def asked(self, number: int) -> None:
        """A broker asks about a transaction, possibly one that this client considers ended, as an
        answered end may be lost when all replicas lose power."""
        chance, plan = self._world.waiting_chance, _plan_of(number)
        is_answered = self.is_over or (plan is not Plan.FORGET and chance.random() < 0.5)
        if is_answered:
            self._tell(_end, number, _ends_as(number), False)

    def _go_on(self, saga: _Saga) -> None:
        """Until it has ended: unanswered requests are repeated."""
        if saga.number not in self._open:
            return
        chance = self._world.waiting_chance
        if not saga.is_stored:
            self._tell(_take, saga.number)
        elif saga.plan is Plan.BOTH:
            for outcome in chance.sample((Outcome.COMMITTED, Outcome.ROLLED_BACK), 2):
                self._tell(_end, saga.number, outcome, False)
        elif saga.plan in (Plan.COMMIT, Plan.ROLL_BACK):
            self._tell(_end, saga.number, _ends_as(saga.number), False)
        else:
            del self._open[saga.number]
        retry_s = RETRY_S * (0.5 + chance.random())
        self._world.kernel.after(retry_s, self, TransactionClient._again, saga.number)

    def _again(self, number: int) -> None:
        if number in self._open:
            self._go_on(self._open[number])

    def stored(self, number: int) -> None:
        """The half message is safe."""
        saga = self._open.get(number)
        if saga is not None and not saga.is_stored:
            saga.is_stored = True
            delay_s = self._world.waiting_chance.choice((0.0, 0.01, 0.1, 1.0))
            self._world.kernel.after(delay_s, self, TransactionClient._again, number)

    def ended(self, number: int) -> None:
        """Sometimes it misses the answer, and asks again."""
        if self._world.waiting_chance.random() < 0.8:
            self._open.pop(number, None)

    def unknown(self, number: int) -> None:
        """It was lost, or ended so long ago that nothing is left of it."""
        self._open.pop(number, None)

    def _tell(self, call: object, *words: object) -> None:
        world = self._world
        for place in world.broker_places.values():
            world.network.post(self.place, place, _hear, call, self.place, words)


def _plan_of(number: int) -> Plan:
    return _PLANS[number % len(_PLANS)]


def _ends_as(number: int) -> Outcome:
    is_commit = _plan_of(number) is not Plan.ROLL_BACK
    return Outcome.COMMITTED if is_commit else Outcome.ROLLED_BACK


# ------------------------------------------------------------------------------ at the brokers


def _hear(broker: Process, call: object, client: Place, words: tuple[object, ...]) -> None:
    assert isinstance(broker, Broker)
    assert callable(call)
    if broker.master is not None:
        assert broker.waiting is not None
        broker.waiting.loop.start(call(broker, client, *words))


async def _take(broker: Broker, client: Place, number: int) -> None:
    assert broker.waiting is not None
    assert broker.waiting.transacting is not None
    try:
        is_safe = await broker.waiting.transacting.take(number)
    except AerobeeError:
        return
    if is_safe:
        broker.world.checks.transactions.told_stored(broker, number)
        broker.world.network.post(broker.place, client, _stored, number)


def _stored(client: Process, number: int) -> None:
    assert isinstance(client, TransactionClient)
    client.stored(number)


async def _end(
    broker: Broker, client: Place, number: int, outcome: Outcome, by_operator: bool
) -> None:
    assert broker.waiting is not None
    assert broker.waiting.transacting is not None
    checks = broker.world.checks
    checks.transactions.asks(number, outcome)
    try:
        ended = await broker.waiting.transacting.end_by(number, outcome, by_operator=by_operator)
    except MessageNotFound:
        checks.transactions.told_unknown(broker, number)
        broker.world.network.post(broker.place, client, _unknown, number)
        return
    except AerobeeError:
        return
    checks.transactions.told_ended(broker, number, ended)
    broker.world.network.post(broker.place, client, _ended, number)


def ask(client: Process, number: int) -> None:
    """A broker's question has come."""
    assert isinstance(client, TransactionClient)
    client.asked(number)


def _ended(client: Process, number: int) -> None:
    assert isinstance(client, TransactionClient)
    client.ended(number)


def _unknown(client: Process, number: int) -> None:
    assert isinstance(client, TransactionClient)
    client.unknown(number)
