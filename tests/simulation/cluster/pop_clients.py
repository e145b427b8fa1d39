"""Clients of POP: a producer, and clients of two groups that poll, handle some messages, lose
others, ask for more time, give up, and retry old deliveries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aerobee.rocketmq_api.ports import PollRequest, Received
from aerobee.rocketmq_api.rules.handles import ReceiptHandle
from aerobee.runtime.errors import AerobeeError
from aerobee.store.format.properties import PropertyName, encode_properties
from tests.simulation.cluster.broker import Broker
from tests.simulation.cluster.kernel import Place, Process
from tests.simulation.cluster.popping import ATTEMPTS_MAX, ERRANDS, QUEUE_COUNT

if TYPE_CHECKING:
    from tests.simulation.cluster.world import World

SEND_PAUSE_S: Final = 0.2
PAUSE_S: Final = 0.1
ANSWERED_WITHIN_S: Final = 1.5
MESSAGE_GROUPS: Final = ("", "a", "b", "c", "d")
OLD_HANDLES: Final = 12


class ErrandProducer(Process):
    """Sends without checking the result, like `DelayingProducer`."""

    __slots__ = ("_world", "is_over")

    def __init__(self, world: World, place: Place) -> None:
        super().__init__(place)
        self._world = world
        self.is_over = False
        world.kernel.after(SEND_PAUSE_S, self, ErrandProducer._send)

    def _send(self) -> None:
        if self.is_over:
            return
        world = self._world
        chance = world.waiting_chance
        queue_id, group = chance.randrange(QUEUE_COUNT), chance.choice(MESSAGE_GROUPS)
        for place in world.broker_places.values():
            world.network.post(self.place, place, _take, queue_id, group)
        world.kernel.after(SEND_PAUSE_S, self, ErrandProducer._send)


def _take(broker: Process, queue_id: int, message_group: str) -> None:
    assert isinstance(broker, Broker)
    assert broker.waiting is not None
    if broker.master is not None and broker.master.takes:
        properties = {PropertyName.SHARDING_KEY: message_group} if message_group else {}
        body = b"%d" % broker.world.next_message_id()
        broker.waiting.store(ERRANDS, queue_id, body, properties=encode_properties(properties))


class PopClient(Process):
    """Knows what it was handed; tells each broker what it does with it, and the master acts."""

    __slots__ = ("_group", "_name", "_old", "_poll_number", "_wanted", "_world", "is_calm")

    def __init__(self, world: World, place: Place, group: str) -> None:
        super().__init__(place)
        self._world = world
        self._group = group
        self._name = place.name.replace(" ", "-")
        self._poll_number = 0
        self._wanted: PollRequest | None = None
        self._old: deque[ReceiptHandle] = deque(maxlen=OLD_HANDLES)
        self.is_calm = False
        """All faults are over: it now handles everything."""
        world.kernel.after(PAUSE_S, self, PopClient._poll, 0)

    # ------------------------------------------------------------------------------ polls

    def _poll(self, number: int) -> None:
        """Unless an earlier call brought something meanwhile."""
        if number != self._poll_number:
            return
        world, chance = self._world, self._world.waiting_chance
        if self._old and chance.random() < 0.15:
            self._finish([chance.choice(self._old)])
        self._poll_number += 1
        if self._wanted is None or chance.random() < 0.5:
            self._wanted = self._new_poll()
        self._tell(_receive, self._poll_number, self._wanted, chance.random())
        world.kernel.after(ANSWERED_WITHIN_S, self, PopClient._poll, self._poll_number)

    def _new_poll(self) -> PollRequest:
        chance = self._world.waiting_chance
        return PollRequest(
            self._group,
            ERRANDS,
            self._name,
            messages_max=8 if self.is_calm else chance.choice((1, 3, 8)),
            invisible_ms=400 if self.is_calm else chance.choice((None, 300, 1_000, 2_000)),
            attempt_id=f"poll {self._poll_number}",
            attempts_max=ATTEMPTS_MAX,
            wish=None,
            wait_ms=chance.choice((0, 0, 600)),
        )

    def got(self, number: int, received: Sequence[Received]) -> None:
        """An answer, possibly one that it no longer waits for."""
        if number == self._poll_number:
            self._poll_number += 1
            self._wanted = None
            self._world.kernel.after(PAUSE_S, self, PopClient._poll, self._poll_number)
        for each in received:
            self._handle(each)

    # ------------------------------------------------------------------------------ messages

    def _handle(self, received: Received) -> None:
        chance, handle = self._world.waiting_chance, received.handle
        self._old.append(handle)
        kind = int(bytes(received.record.body)) % 16
        if self.is_calm:
            self._finish([handle])
        elif kind == 3:
            return  # no client can handle it
        elif kind == 7:
            self._world.checks.pops.asks(handle)
            self._tell(_forward, handle, self._name)
        elif (draw := chance.random()) < 0.15:
            return
        elif draw < 0.25:
            invisible_ms, is_counted = chance.choice((0, 400, 1_500)), chance.random() < 0.8
            self._tell(_change, handle, invisible_ms, is_counted)
        else:
            self._finish_after(chance.choice((0.0, 0.05, 0.4, 1.2)), handle)

    def changed(self, handle: ReceiptHandle) -> None:
        """It has the message until a different time now."""
        self._old.append(handle)
        self._finish_after(0.2, handle)

    def _finish_after(self, delay_s: float, handle: ReceiptHandle) -> None:
        self._world.kernel.after(delay_s, self, PopClient._finish, [handle])

    def _finish(self, handles: Sequence[ReceiptHandle]) -> None:
        for handle in handles:
            self._world.checks.pops.asks(handle)
        self._tell(_acknowledge, handles)

    def _tell(self, call: object, *words: object) -> None:
        world = self._world
        for place in world.broker_places.values():
            world.network.post(self.place, place, _hear, call, self.place, self._name, words)


# ------------------------------------------------------------------------------ at the brokers


def _hear(
    broker: Process, call: object, client: Place, name: str, words: tuple[object, ...]
) -> None:
    """A client's call. Slaves pass it on, as every client asks the master anyway."""
    assert isinstance(broker, Broker)
    assert callable(call)
    if broker.master is None:
        return
    assert broker.waiting is not None
    assert broker.waiting.popping is not None
    broker.waiting.popping.clients.heard(name, "", "", "")
    call(broker, client, *words)


def _receive(broker: Broker, client: Place, number: int, wanted: PollRequest, draw: float) -> None:
    """`draw` < 0.1: the client is gone before it gets the answer."""
    waiting = broker.waiting
    assert waiting is not None
    task = waiting.loop.start(_received(broker, client, number, wanted, has_gone=draw < 0.05))
    if 0.05 <= draw < 0.1:
        waiting.loop.call_later(draw * 5.0, task.cancel)


async def _received(
    broker: Broker, client: Place, number: int, wanted: PollRequest, *, has_gone: bool
) -> None:
    assert broker.waiting is not None
    popping = broker.waiting.popping
    assert popping is not None
    try:
        received = await popping.own.receive(wanted)
    except AerobeeError:
        return
    if has_gone:
        popping.own.give_back(received)
        return
    for each in received:
        broker.world.checks.pops.told(broker, each.handle, each.attempt)
    broker.world.network.post(broker.place, client, _got, number, received)


def _got(client: Process, number: int, received: Sequence[Received]) -> None:
    assert isinstance(client, PopClient)
    client.got(number, received)


def _acknowledge(broker: Broker, client: Place, handles: Sequence[ReceiptHandle]) -> None:
    assert broker.waiting is not None
    broker.waiting.loop.start(_acknowledged(broker, handles))


async def _acknowledged(broker: Broker, handles: Sequence[ReceiptHandle]) -> None:
    assert broker.waiting is not None
    assert broker.waiting.popping is not None
    results = await broker.waiting.popping.own.acknowledge(handles)
    for handle, error in zip(handles, results, strict=True):
        if error is None:
            broker.world.checks.pops.acknowledged(broker, handle)


def _change(
    broker: Broker, client: Place, handle: ReceiptHandle, invisible_ms: int, is_counted: bool
) -> None:
    assert broker.waiting is not None
    broker.waiting.loop.start(_changed(broker, client, handle, invisible_ms, is_counted))


async def _changed(
    broker: Broker, client: Place, handle: ReceiptHandle, invisible_ms: int, is_counted: bool
) -> None:
    assert broker.waiting is not None
    assert broker.waiting.popping is not None
    own = broker.waiting.popping.own
    try:
        changed = await own.change(handle, invisible_ms, is_counted=is_counted)
    except AerobeeError:
        return
    broker.world.network.post(broker.place, client, _got_change, changed)


def _got_change(client: Process, handle: ReceiptHandle) -> None:
    assert isinstance(client, PopClient)
    client.changed(handle)


def _forward(broker: Broker, client: Place, handle: ReceiptHandle, client_id: str) -> None:
    assert broker.waiting is not None
    broker.waiting.loop.start(_forwarded(broker, handle, client_id))


async def _forwarded(broker: Broker, handle: ReceiptHandle, client_id: str) -> None:
    assert broker.waiting is not None
    assert broker.waiting.popping is not None
    try:
        await broker.waiting.popping.own.forward(handle, client_id)
    except AerobeeError:
        return
    broker.world.checks.pops.acknowledged(broker, handle)
