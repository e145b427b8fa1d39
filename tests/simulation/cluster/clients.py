"""Producers and consumers: they know addresses, but not which broker is master."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.cluster.broker import Broker
from tests.simulation.cluster.derived import Message
from tests.simulation.cluster.kernel import Place, Process

if TYPE_CHECKING:
    from tests.simulation.cluster.world import World

SEND_TIMEOUT_S = 1.5
GIVE_UP_S = 4.0
QUEUES = 2


class Send(NamedTuple):
    """One attempt to send a message."""

    message: Message
    queue_id: int
    size: int
    source: Place
    attempt: int


class Producer(Process):
    """Sends one message after another, each until it is acknowledged."""

    __slots__ = (
        "_attempt",
        "_began_s",
        "_message",
        "_pause_s",
        "_producer_id",
        "_target",
        "_world",
        "acknowledged",
        "out_of_sequence",
    )

    def __init__(self, world: World, place: Place, producer_id: int, pause_s: float) -> None:
        super().__init__(place)
        self._producer_id = producer_id
        self._message = Message(0, producer_id, -1)
        self._began_s = 0.0
        self.out_of_sequence = 0
        self._world = world
        self._pause_s = pause_s
        self._attempt = 0
        self._target = 0
        self.acknowledged = 0
        world.kernel.after(pause_s, self, Producer._next)

    def _next(self) -> None:
        message_id = self._world.next_message_id()
        self._message = Message(message_id, self._producer_id, self._message.sequence + 1)
        self._began_s = self._world.kernel.now_s
        self._send()

    def _send(self) -> None:
        world = self._world
        self._attempt += 1
        if world.kernel.now_s - self._began_s > GIVE_UP_S:
            self._next()
            return
        message = self._message
        size = 50 + message.message_id % 7 * 40
        send = Send(message, message.producer_id % QUEUES, size, self.place, self._attempt)
        target = world.broker_places[self._target]
        world.network.post(self.place, target, world.on_send, send)
        world.kernel.after(SEND_TIMEOUT_S, self, Producer._timed_out, self._attempt)

    def _timed_out(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._elsewhere()

    def _elsewhere(self) -> None:
        targets = list(self._world.broker_places)
        self._target = targets[self._world.chance.randrange(len(targets))]
        self._send()

    def answered(self, attempt: int, status: str, start: int) -> None:
        if attempt != self._attempt:
            return
        self._attempt += 1
        if status == "OK":
            self.acknowledged += 1
            self._world.kernel.after(self._pause_s, self, Producer._next)
        elif status == "FLUSH_SLAVE_TIMEOUT":
            self._send()
        elif status == "OUT_OF_SEQUENCE":
            self.out_of_sequence += 1
            self._next()
        else:
            self._world.kernel.after(0.05, self, Producer._again, self._attempt)

    def _again(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._elsewhere()


class Reader(Process):
    """Reads from any replica as far as that allows."""

    __slots__ = ("_pause_s", "_world")

    def __init__(self, world: World, place: Place, pause_s: float) -> None:
        super().__init__(place)
        self._world = world
        self._pause_s = pause_s
        world.kernel.after(pause_s, self, Reader._read)

    def _read(self) -> None:
        world = self._world
        targets = list(world.broker_places.values())
        target = targets[world.chance.randrange(len(targets))]
        world.network.post(self.place, target, _serve)
        world.kernel.after(self._pause_s, self, Reader._read)


def _serve(process: Process) -> None:
    assert isinstance(process, Broker)
    end = process.readable_end
    if end is not None:
        process.world.checks.read(process, end)
