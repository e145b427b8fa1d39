"""Clients whose messages wait or fail: a producer that sends them, and a member of a group that
handles some of them only after sending them back, and others never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.groups.ownership import NOBODYS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.merge import NO_LEASE, Change, ChangeKind
from aerobee.broker.retries.send_backs import Failure, Sender
from aerobee.runtime.errors import AerobeeError
from aerobee.store.format.dead_letter_fields import retry_topic
from aerobee.store.format.delayed_records import Delay
from aerobee.store.format.record_view import Record
from tests.simulation.cluster.broker import Broker
from tests.simulation.cluster.kernel import Place, Process
from tests.simulation.cluster.seen_store import LEVELS, ORDERS
from tests.simulation.cluster.stored_queues import EPOCH_MS
from tests.simulation.cluster.waiting import RETRIES_MAX
from tests.simulation.cluster.waiting_checks import Attempt

if TYPE_CHECKING:
    from tests.simulation.cluster.world import World

GROUP = "R"
QUEUES = (GroupQueue(GROUP, ORDERS, 0), GroupQueue(GROUP, retry_topic(GROUP), 0))
PAUSE_S = 0.15
HANDED_OUT_MAX = 8
DELAYS_MS = (20, 300, 1_500, 4_000, 8_000)

Handed = list[tuple[GroupQueue, int, Attempt]]
"""Messages by queue and offset."""


class DelayingProducer(Process):
    """Sends without checking the result: the broker names each message, so a duplicated request is
    two messages."""

    __slots__ = ("_world", "is_over")

    def __init__(self, world: World, place: Place) -> None:
        super().__init__(place)
        self._world = world
        self.is_over = False
        world.kernel.after(PAUSE_S, self, DelayingProducer._send)

    def _send(self) -> None:
        if self.is_over:
            return
        world = self._world
        chance = world.waiting_chance
        draw = chance.random()
        delay: Delay | None = None
        if draw < 0.3:
            delay = Delay(level=chance.randint(1, len(LEVELS)))
        elif draw < 0.7:
            now_ms = EPOCH_MS + round(world.kernel.now_s * 1_000)
            delay = Delay(deliver_ms=now_ms + chance.choice(DELAYS_MS))
        for place in world.broker_places.values():
            world.network.post(self.place, place, _take, delay)
        world.kernel.after(PAUSE_S, self, DelayingProducer._send)


def _take(broker: Process, delay: Delay | None) -> None:
    assert isinstance(broker, Broker)
    assert broker.waiting is not None
    if broker.master is not None and broker.master.takes:
        broker.waiting.take(delay, broker.world.next_message_id())


class FailingMember(Process):
    """The only one of its group. Knows what it has handled, and asks each master for the rest."""

    __slots__ = ("_handled", "_world")

    def __init__(self, world: World, place: Place) -> None:
        super().__init__(place)
        self._world = world
        self._handled: set[Attempt] = set()
        world.kernel.after(PAUSE_S, self, FailingMember._ask)

    def _ask(self) -> None:
        world = self._world
        for place in world.broker_places.values():
            world.network.post(self.place, place, _hand_out, self.place)
        world.kernel.after(PAUSE_S, self, FailingMember._ask)

    def got(self, source: Place, messages: Handed) -> None:
        """A master sends it these; some are handled, in any order, and others fail."""
        world = self._world
        chance = world.waiting_chance
        for key, offset, attempt in messages:
            if chance.random() < 0.3:
                continue
            if attempt in self._handled or attempt[1] >= _failures(attempt[0]):
                self._handled.add(attempt)
            else:
                world.network.post(self.place, source, _send_back, key, offset, attempt)
        for key in QUEUES:
            of_key = [each for each in messages if each[0] == key]
            waits = [offset for _, offset, attempt in of_key if attempt not in self._handled]
            if of_key and chance.random() < 0.5:
                lowest = min(waits, default=of_key[-1][1] + 1)
                world.network.post(self.place, source, _commit, key, lowest)


def _failures(name: int) -> int:
    """How often the message fails before it is handled."""
    return (0, 1, 1, 2, RETRIES_MAX + 1)[name % 5]


def _hand_out(broker: Process, member: Place) -> None:
    """Everything confirmed and not finished for the group."""
    assert isinstance(broker, Broker)
    if broker.master is None or not broker.master.takes or broker.master.groups.offsets is None:
        return
    assert broker.waiting is not None
    state, queues = broker.derived.journal, broker.waiting.queues
    handed: Handed = []
    for key in QUEUES:
        name = key.topic, key.queue_id
        standing, finished = state.standing(key), state.finished_beyond(key)
        begin = max(queues.bounds(name).min_offset, 0 if standing is None else standing.offset)
        some = [
            (key, record.queue_offset, _attempt(record.data.record))
            for _, record in queues.confirmed(name, begin, 1_000)
            if finished is None or record.queue_offset not in finished
        ]
        handed += some[:HANDED_OUT_MAX]
    broker.world.checks.check_acts(broker, "hands out messages")
    for _, _, attempt in handed:
        broker.world.checks.waiting.handed_out(attempt)
    broker.world.network.post(broker.place, member, _got, broker.place, handed)


def _got(member: Process, source: Place, messages: Handed) -> None:
    assert isinstance(member, FailingMember)
    member.got(source, messages)


def _attempt(record: Record) -> Attempt:
    return int(bytes(record.body)), record.reconsume_times


def _send_back(broker: Process, key: GroupQueue, offset: int, attempt: Attempt) -> None:
    assert isinstance(broker, Broker)
    assert broker.waiting is not None
    broker.waiting.loop.start(_sent_back(broker, key, offset, attempt))


async def _sent_back(broker: Broker, key: GroupQueue, offset: int, attempt: Attempt) -> None:
    waiting = broker.waiting
    assert waiting is not None
    try:
        failure = Failure(offset, 0, "ValueError", "no such order")
        (answer,) = await waiting.send_backs.send_back(Sender(key, NOBODYS, "r"), [failure])
        if answer.error is not None:
            return
        if answer.done is not None:
            await answer.done
        waiting.check()
    except AerobeeError:
        return
    broker.world.checks.check_acts(broker, "tells that a message was sent back")
    broker.world.checks.waiting.was_sent_back(attempt)


def _commit(broker: Process, key: GroupQueue, offset: int) -> None:
    assert isinstance(broker, Broker)
    if broker.master is None or not broker.master.takes:
        return
    writer = broker.master.groups.offsets
    standing = None if writer is None else writer.standing(key)
    if writer is not None and (standing is None or standing.offset < offset):
        writer.change(key, Change(ChangeKind.COMMIT, offset, NO_LEASE), "r")
