"""RingService: tells other nodes that messages can be received here, for the polls that they have.

Owns: the wishes of each stream. A wish waits at the bells like a poll, and remembers no message: a
ring is only a hint, and the node then takes by a poll of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import grpc

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.popping.bells import Bells, FarWaiter
from aerobee.broker.popping.pops import Pops
from aerobee.domain.names import check_group_name
from aerobee.rocketmq_api.services.rings import is_concerned
from aerobee.rpc.outside import require_inside
from aerobee.runtime.errors import AerobeeError, InvalidArgument, ShuttingDown
from aerobee.runtime.task_groups import first_leaf
from aerobee.v1 import broker_pb2, broker_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]
Keys = Callable[[str, str], Sequence[GroupQueue]]


class RingService(broker_pb2_grpc.RingServiceServicer):
    """Each stream is that of one node."""

    def __init__(self, bells: Bells, pops: Pops, keys: Keys) -> None:
        """`keys`: the queues of a group's poll for a topic; raises AerobeeError."""
        self._bells = bells
        self._pops = pops
        self._keys = keys
        self._sessions: set[_Session] = set()
        self._is_closed = False

    def close(self) -> None:
        """The broker is stopping: all streams end."""
        self._is_closed = True
        for session in self._sessions:
            session.due.set()

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics of this broker may have more queues, and groups a retry topic."""
        for session in self._sessions:
            session.topics_changed(names)

    async def Rings(self, request_iterator: object, context: Context) -> None:
        require_inside(context, "the stream of rings")
        session = _Session(self._bells, self._pops, self._keys)
        self._sessions.add(session)
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(context, session), name="ring-wishes")
                while not (reading.done() or self._is_closed):
                    await session.due.wait()
                    session.due.clear()
                    if session.rung or session.refused:
                        await context.write(session.said())
                reading.cancel()
        except* AerobeeError as group:
            raise first_leaf(group) from None
        finally:
            self._sessions.discard(session)
            session.end()
        if self._is_closed:
            raise ShuttingDown("the broker is stopping; ask the route for the master")

    async def _read(self, context: Context, session: _Session) -> None:
        try:
            while (frame := await context.read()) is not grpc.aio.EOF:
                for wish in frame.wishes:
                    session.wishes(wish)
                del frame  # the next may come in hours
        finally:
            session.due.set()


class _Wish:
    __slots__ = ("group", "keys", "topic", "waiter")

    def __init__(self, group: str, topic: str, keys: list[GroupQueue], waiter: FarWaiter) -> None:
        self.group = group
        self.topic = topic
        self.keys = keys
        self.waiter = waiter


class _Session:
    """The wishes of one node."""

    def __init__(self, bells: Bells, pops: Pops, keys: Keys) -> None:
        self._bells = bells
        self._pops = pops
        self._keys = keys
        self._wishes: dict[int, _Wish] = {}
        self.rung: dict[int, None] = {}
        self.refused: dict[int, None] = {}
        self.due = asyncio.Event()

    def wishes(self, wish: broker_pb2.RingWish) -> None:
        """Raises InvalidArgument."""
        known = self._wishes.get(wish.id)
        if wish.kind == broker_pb2.RingWish.END:
            self._end(wish.id)
        elif wish.kind == broker_pb2.RingWish.PASS_ON:
            if known is not None:
                known.waiter.pass_on()
        elif wish.kind == broker_pb2.RingWish.RING_UNSPECIFIED:
            self._wait(wish, known)
        else:
            raise InvalidArgument(f"there is no kind {wish.kind} of wish")

    def topics_changed(self, names: Collection[str]) -> None:
        """The node wishes again, and then for the queues that there are now."""
        for number, wish in self._wishes.items():
            if is_concerned(wish.group, wish.topic, names):
                self._on_ring(number)

    def said(self) -> broker_pb2.Rung:
        """What was rung since it was asked last."""
        said = broker_pb2.Rung(ids=self.rung, refused=self.refused)
        self.rung.clear()
        self.refused.clear()
        return said

    def end(self) -> None:
        for number in list(self._wishes):
            self._end(number)

    def _wait(self, wish: broker_pb2.RingWish, known: _Wish | None) -> None:
        try:
            check_group_name(wish.group)
            # The topic may have more queues by now, and their order differs from poll to poll.
            keys = sorted(self._keys(wish.group, wish.topic))
            if known is None or known.keys != keys:
                self._end(wish.id)
                waiter = self._bells.wait_far(
                    keys,
                    wish.topic,
                    partial(self._on_ring, wish.id),
                    partial(self._pops.may_have, keys),
                )
                known = self._wishes[wish.id] = _Wish(wish.group, wish.topic, keys, waiter)
        except AerobeeError:
            self._end(wish.id)
            self.refused[wish.id] = None
            self.due.set()
        else:
            known.waiter.looks()

    def _on_ring(self, number: int) -> None:
        self.rung[number] = None
        self.due.set()

    def _end(self, number: int) -> None:
        wish = self._wishes.pop(number, None)
        self.rung.pop(number, None)
        if wish is not None:
            self._bells.leave_far(wish.waiter)
