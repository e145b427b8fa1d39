"""Polls of remoting clients: the broker chooses the messages (POP), and an answer has their records
as they are stored.

    fields -> look -> messages: answer
                   -> none: wait for a ring of the queues' bells, or for the time to end; look again

Owns: the polls that wait. Each costs a few objects and no task. Invariant: a poll is answered once,
or its connection has ended and what it took is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Final

from aerobee.access.meter import begin_poll
from aerobee.access.running import require_still
from aerobee.broker.edge.remoting.clients import RemotingClients
from aerobee.broker.edge.rocketmq.own_pops import OwnPops
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.popping.bells import Bells, ParkedWaiter
from aerobee.broker.popping.pops import Pops
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.domain.sql_filter.wish import Wish
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_api.ports import Groups, PollRequest, Received
from aerobee.rocketmq_remoting.codes import Code, refusal
from aerobee.rocketmq_remoting.heartbeats import Subscribed
from aerobee.rocketmq_remoting.pops import IN_ORDER, PopAsked, PoppedFrom, nothing, popped_fields
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, Busy, LeaseHeld, NotMaster, QuotaExceeded
from aerobee.store.format.pop_records import retry_topics_of
from aerobee.store.format.record_rewrite import recounted

_REFUSED_AFTER_S_MAX: Final = 5.0
_CLIENT: Final = "remoting"
"""Polls are repeated by an id that is unique by itself."""


class RemotingPops:
    """On the loop."""

    def __init__(
        self,
        own: OwnPops,
        pops: Pops,
        bells: Bells,
        clients: RemotingClients,
        groups: Groups,
        expressions: CompiledExpressions,
        clock: Clock,
        *,
        ask_order: Callable[[str], None],
        begin_of: Callable[[GroupQueue], int],
    ) -> None:
        """`ask_order`: a poll asks for a group's messages in order; raises Busy. `begin_of`: where
        POP would begin to consume a queue."""
        self.own = own
        self.pops = pops
        self.bells = bells
        self.clock = clock
        self._clients = clients
        self._groups = groups
        self._expressions = expressions
        self._ask_order = ask_order
        self._begin_of = begin_of
        self._waiting: dict[_Waiting, None] = {}

    @property
    def waiting(self) -> int:
        """Polls that wait for a message."""
        return len(self._waiting)

    def check_master(self) -> None:
        """Raises NotMaster."""
        if not self.own.is_master():
            raise NotMaster(f"this replica of broker {self.own.broker_name} is not its master")

    async def pop(self, connection: Connection, request: Command) -> Command | None:
        """Code 200050. Raises AerobeeError."""
        asked = PopAsked.of(request.fields)
        self.check_master()
        if self._clients.members.has(GroupQueue(asked.group, asked.topic, max(0, asked.queue_id))):
            # Also what a member asks that has not heard of a new mode: it would drop the messages.
            raise LeaseHeld(
                f"members of group {asked.group} pull topic {asked.topic}: stop them, or set its "
                "mode to POP (mqadmin setConsumeMode)"
            )
        waiting = _Popping(self, connection, request, asked)
        try:
            await begin_poll(asked.group)
            wanted = await self._wanted(asked)
        except QuotaExceeded as error:
            return waiting.refuse_later(error)
        waiting.wants(wanted, self.own.keys(asked.group, asked.topic, asked.queue_id))
        return await waiting.begin()

    async def notify(self, connection: Connection, request: Command) -> Command | None:
        """Code 200054: as a poll that takes nothing. Raises AerobeeError."""
        asked = PopAsked.of(request.fields, takes=False)
        self.check_master()
        waiting = _Notifying(self, connection, request, asked)
        try:
            await begin_poll(asked.group)
        except QuotaExceeded as error:
            return waiting.refuse_later(error)
        waiting.keys = self.own.keys(asked.group, asked.topic, asked.queue_id)
        return await waiting.begin()

    def polling(self, connection: Connection, request: Command) -> Command:
        """Code 200055: how many polls wait. Raises AerobeeError."""
        asked = PopAsked.of(request.fields, takes=False)
        keys = self.own.keys(asked.group, asked.topic, asked.queue_id)
        return request.answer(fields={"pollingNum": str(self.bells.waiting(keys))})

    async def _wanted(self, asked: PopAsked) -> PollRequest:
        rules = await self._groups.rules(asked.group)
        if asked.is_ordered:
            self._ask_order(asked.group)
        return PollRequest(
            group=asked.group,
            topic=asked.topic,
            client=_CLIENT,
            messages_max=asked.messages_max,
            invisible_ms=asked.invisible_ms,
            attempt_id=asked.attempt_id,
            attempts_max=rules.attempts_max,
            wish=await self._wish(asked),
            wait_ms=0,
            queue_id=asked.queue_id,
            begins_at_first=asked.begins_at_first,
            takes_runs=asked.is_ordered,
        )

    async def _wish(self, asked: PopAsked) -> Wish:
        """Raises FilterIllegal."""
        if asked.is_sql:
            await self._expressions.prepared([asked.expression], asked.group)
        return self._clients.wish_of(Subscribed(asked.topic, asked.expression, asked.is_sql))

    def has_messages(self, keys: Sequence[GroupQueue]) -> bool:
        return self.pops.has_messages(keys, self._begin_of)

    def end_all(self) -> None:
        """Answer every poll that waits: the broker stops, or its role has changed."""
        for waiting in list(self._waiting):
            waiting.end()

    def end_of(self, group: str, topic: str) -> None:
        """The same for the polls of a group for a topic: its members pull from now on."""
        for waiting in [each for each in self._waiting if each.is_of(group, topic)]:
            waiting.end()

    # ------------------------------------------------------------------------------ of waiting ones

    def enter(self, waiting: _Waiting) -> None:
        self._waiting[waiting] = None

    def leave(self, waiting: _Waiting) -> None:
        self._waiting.pop(waiting, None)


class _Waiting:
    """One request that may wait, until its answer."""

    __slots__ = (
        "_asked",
        "_connection",
        "_context",
        "_deadline_s",
        "_is_entered",
        "_is_looking",
        "_is_over",
        "_pops",
        "_request",
        "_timer",
        "_waiter",
        "keys",
    )

    def __init__(
        self, pops: RemotingPops, connection: Connection, request: Command, asked: PopAsked
    ) -> None:
        self.keys: Sequence[GroupQueue] = ()
        self._pops = pops
        self._connection = connection
        self._request = request
        self._asked = asked
        self._deadline_s = pops.clock.monotonic_s() + asked.wait_ms / 1_000
        self._waiter: ParkedWaiter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_entered = self._is_looking = self._is_over = False
        # Others wake it, in calls of their own: it goes on as the caller's, who pays.
        self._context = copy_context()

    def is_of(self, group: str, topic: str) -> bool:
        return (group, topic) == (self._asked.group, self._asked.topic)

    async def found(self) -> Command | None:
        """The answer, if there is something now. Raises AerobeeError."""
        raise NotImplementedError

    def nothing(self) -> Command:
        """The answer when the time is over."""
        raise NotImplementedError

    async def begin(self) -> Command | None:
        """The first look, in the request's own task. Raises AerobeeError."""
        answer = await self.found()
        if answer is None and self._left_s <= 0:
            answer = self.nothing()
        if answer is not None or not self._connection.is_open:
            return answer
        try:
            self._waiter = self._pops.bells.waits_parked(self.keys, self._asked.topic, self._wake)
        except Busy:
            return self._full()
        self._enter()
        await self._look()
        return None

    def refuse_later(self, error: QuotaExceeded) -> Command | None:
        """Clients ask again at once: they are told when their next chance has come."""
        answer = refusal(self._request, error)
        if self._left_s <= 0 or not self._connection.is_open:
            return answer
        self._enter()
        pause_s = min(error.retry_after_ms / 1_000, _REFUSED_AFTER_S_MAX)
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._reply, answer)
        return None

    def end(self) -> None:
        """Its time is over: it is told what is there now."""
        self._deadline_s = 0.0
        if not self._is_looking:
            self._reply(self.nothing())

    @property
    def _left_s(self) -> float:
        return self._deadline_s - self._pops.clock.monotonic_s()

    def _full(self) -> Command:
        return nothing(self._request, Code.POLLING_FULL)

    def _enter(self) -> None:
        self._is_entered = True
        self._pops.enter(self)
        self._connection.when_closed(self._forget)

    def _wake(self) -> None:
        """There may be something, or the time is over."""
        assert self._waiter is not None
        if not self._waiter.is_rung or self._connection.is_paused:
            self._reply(self.nothing())
            return
        self._is_looking = True
        self._connection.begun()
        task = asyncio.get_running_loop().create_task(
            self._look_again(), name="pop", context=self._context
        )
        task.add_done_callback(_ended)

    async def _look_again(self) -> None:
        try:
            await self._look()
        finally:
            self._connection.finished()

    async def _look(self) -> None:
        self._is_looking = True
        try:
            while not self._is_over:
                assert self._waiter is not None
                self._waiter.looks()
                require_still()
                answer = await self.found()
                if answer is None and self._left_s <= 0:
                    answer = self.nothing()
                if answer is not None:
                    self._reply(answer)
                elif not self._is_over and not self._waiter.is_rung:
                    self._waiter.park(self._left_s, self._pops.bells.ends)
                    return
        except AerobeeError as error:
            self._reply(refusal(self._request, error))
        finally:
            self._is_looking = False

    def _reply(self, answer: Command) -> None:
        if not self._is_over:
            self._forget()
            self._connection.reply(answer)

    def _forget(self) -> None:
        self._is_over = True
        if self._is_entered:
            self._pops.leave(self)
            self._connection.forget_closed(self._forget)
        if self._waiter is not None:
            self._pops.bells.leave(self._waiter)
        if self._timer is not None:
            self._timer.cancel()


class _Popping(_Waiting):
    """A poll for messages."""

    __slots__ = ("_wanted",)

    def wants(self, wanted: PollRequest, keys: Sequence[GroupQueue]) -> None:
        self._wanted = wanted
        self.keys = keys

    def nothing(self) -> Command:
        return nothing(self._request, Code.POLLING_TIMEOUT)

    async def found(self) -> Command | None:
        own = self._pops.own
        received = await own.look(self._wanted, self.keys, self._deadline_s)
        if not received:
            return None
        if not self._connection.is_open:
            own.give_back(received)
            return None
        return self._answer(received)

    def _answer(self, received: Sequence[Received]) -> Command:
        """What fits into one answer; the rest is given back."""
        asked = self._asked
        retries = retry_topics_of(asked.group, asked.topic)
        visible_ms = received[0].handle.visible_ms
        retry_topic = ""
        kept: list[Received] = []
        returned: list[Received] = []
        for each in received:
            topic = each.handle.topic
            is_retry = topic != asked.topic
            if is_retry and not retry_topic:
                retry_topic = topic
            fits = each.handle.visible_ms == visible_ms and (not is_retry or topic == retry_topic)
            (kept if fits else returned).append(each)
        if returned:
            self._pops.own.give_back(returned)
        revive = retries.index(retry_topic) + 1 if retry_topic else 0
        fields = popped_fields(
            _parts(kept),
            popped_ms=visible_ms - asked.invisible_ms,
            invisible_ms=asked.invisible_ms,
            revive=IN_ORDER if asked.is_ordered else revive,
            left=self._pops.pops.unread(self.keys),
        )
        body = b"".join([recounted(each.record, each.attempt - 1) for each in kept])
        return self._request.answer(Code.SUCCESS, fields, body)


class _Notifying(_Waiting):
    """A question whether a poll would get something."""

    __slots__ = ()

    def nothing(self) -> Command:
        return self._request.answer(fields={"hasMsg": "false", "pollingFull": "false"})

    def _full(self) -> Command:
        return self._request.answer(fields={"hasMsg": "false", "pollingFull": "true"})

    async def found(self) -> Command | None:
        if not self._pops.has_messages(self.keys):
            return None
        return self._request.answer(fields={"hasMsg": "true", "pollingFull": "false"})

    def _reply(self, answer: Command) -> None:
        super()._reply(answer)
        # It takes nothing: what woke it is there for the next one.
        for key in self.keys:
            if self._pops.has_messages((key,)):
                self._pops.bells.ring(key)


def _parts(received: Sequence[Received]) -> list[PoppedFrom]:
    found: dict[tuple[str, int], list[int]] = {}
    for handle, _, _ in received:
        found.setdefault((handle.topic, handle.queue_id), []).append(handle.queue_offset)
    return [PoppedFrom(*queue, offsets) for queue, offsets in found.items()]


def _ended(task: asyncio.Task[None]) -> None:
    """A bug is raised where the loop reports it."""
    if not task.cancelled():
        task.result()
