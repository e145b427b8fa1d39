"""Pulls of remoting clients: one answer each, from the log as it is stored.

    fields -> may this group read the queue? -> read -> records: answer
                                                     -> none: wait for one, or for the time to end

Owns: the pulls that wait. Each costs a few objects and no task. Invariant: a pull is answered once,
or its connection has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from typing import Final

from aerobee.access.meter import PATIENCE_S, Meter, reading_meter
from aerobee.access.quota import Traffic
from aerobee.access.running import require_still
from aerobee.broker.edge.remoting.clients import RemotingClients
from aerobee.broker.edge.remoting.progress import Progress
from aerobee.broker.groups.ownership import Ownership
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.reading.egress import (
    ColdRead,
    Egress,
    Fetched,
    ReadCode,
    clamp_bytes,
)
from aerobee.broker.reading.filters import filter_of
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting.codes import Code, refusal
from aerobee.rocketmq_remoting.dispatch import Answered
from aerobee.rocketmq_remoting.heartbeats import Subscribed
from aerobee.rocketmq_remoting.pulls import Pull
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, Busy, LeaseHeld, QuotaExceeded
from aerobee.store.engine.queue_reads import QueueRead

_REFUSED_AFTER_S_MAX: Final = 5.0
_PASSED_TOLD_S: Final = 1.0
"""How long a pull that has passed what it does not want goes on waiting: until it is answered, its
reader does not know how far it is."""
WAITING_MAX: Final = 100_000
"""Pulls that wait at this broker."""

_CODES: Final = {
    ReadCode.OK: Code.SUCCESS,
    ReadCode.NO_NEW_MESSAGE: Code.PULL_NOT_FOUND,
    ReadCode.OFFSET_TOO_SMALL: Code.PULL_OFFSET_MOVED,
    ReadCode.OFFSET_TOO_LARGE: Code.PULL_OFFSET_MOVED,
    ReadCode.MESSAGE_REMOVED: Code.PULL_RETRY_IMMEDIATELY,
}


class Pulls:
    """On the loop."""

    def __init__(
        self,
        egress: Egress,
        clients: RemotingClients,
        progress: Progress,
        ownership: Ownership,
        clock: Clock,
        *,
        is_popped: Callable[[str, str], bool],
        on_delivered: Callable[[str, str, int, int], None],
    ) -> None:
        """`is_popped`: whether a group takes a topic by POP. `on_delivered` gets what was sent:
        group, topic, messages, bytes."""
        self.egress = egress
        self.clock = clock
        self._clients = clients
        self._progress = progress
        self._ownership = ownership
        self._is_popped = is_popped
        self._on_delivered = on_delivered
        self._waiting: dict[GroupQueue, dict[_Waiting, None]] = {}
        self.waiting = 0
        """Pulls that wait for a message."""

    def pull(self, connection: Connection, request: Command) -> Answered:
        """Codes 11 and 361. Raises AerobeeError."""
        pull = Pull.of(request.fields)
        key = GroupQueue(pull.group, pull.topic, pull.queue_id)
        member = self._clients.members.of_connection(pull.group, connection)
        wanted = pull.subscription
        subscribed = None if wanted is None else Subscribed(pull.topic, wanted, pull.is_sql)
        if subscribed is None:
            subscribed = member.wants.get(pull.topic) if member is not None else None
            subscribed = subscribed or self._clients.subscribed(pull.group, pull.topic)
            if subscribed is None:
                return request.answer(
                    Code.SUBSCRIPTION_NOT_EXIST,
                    remark=f"group {pull.group} has not said that it subscribes to {pull.topic}",
                )
            if subscribed.version < pull.subscription_version:
                return request.answer(
                    Code.SUBSCRIPTION_NOT_LATEST,
                    remark="the subscription of the last heart-beat is older than this one",
                )
        is_broadcasting = member is not None and member.is_broadcasting
        if not is_broadcasting and not self.egress.is_slave:
            if self._is_popped(pull.group, pull.topic):
                raise LeaseHeld(
                    f"group {pull.group} takes topic {pull.topic} by POP (mqadmin setConsumeMode): "
                    "let the broker divide the queues, or set the mode PULL"
                )
            self._ownership.wanted_by_self(key)
            moved = self._progress.moved_to(key, pull.offset)
            if moved is not None:
                return request.answer(Code.PULL_OFFSET_MOVED, _moved(moved))
            if pull.commit_offset:
                client_id = "" if member is None else member.client_id
                self._progress.commit_quietly(key, pull.commit_offset, client_id)
        waiting = _Waiting(self, connection, request, pull, self._read_of(pull, subscribed))
        meter = reading_meter(pull.group)
        if meter is not None:
            wait_s = meter.spend(Traffic.READ, 0, pull.group, patience_s=PATIENCE_S)
            if wait_s:
                return waiting.look_after(meter, wait_s)
        waiting.look()
        return None

    def _read_of(self, pull: Pull, subscribed: Subscribed) -> QueueRead:
        """Clients compare tags themselves."""
        return QueueRead(
            pull.topic,
            pull.queue_id,
            pull.offset,
            clamp_bytes(pull.bytes_max),
            pull.messages_max,
            filter_of(self._clients.wish_of(subscribed), is_exact=False),
            pull.group,
        )

    def offset_set(self, key: GroupQueue) -> None:
        """An operator set the group's offset: pulls that wait there learn of it."""
        for waiting in list(self._waiting.get(key, ())):
            moved = self._progress.moved_to(key, waiting.offset)
            if moved is not None:
                waiting.moved(moved)

    def end_all(self) -> None:
        """Answer every pull that waits: the broker stops, or its role has changed."""
        for waiting in [each for those in self._waiting.values() for each in those]:
            waiting.end()

    # ------------------------------------------------------------------------------ of waiting ones

    def enter(self, waiting: _Waiting) -> None:
        """Raises Busy."""
        if self.waiting >= WAITING_MAX:
            raise Busy(f"{WAITING_MAX} pulls wait at this broker already; pull again later")
        self._waiting.setdefault(waiting.key, {})[waiting] = None
        self.waiting += 1

    def leave(self, waiting: _Waiting) -> None:
        those = self._waiting[waiting.key]
        del those[waiting]
        self.waiting -= 1
        if not those:
            del self._waiting[waiting.key]

    def delivered(self, pull: Pull, fetched: Fetched) -> None:
        if fetched.count:
            self._on_delivered(pull.group, pull.topic, fetched.count, len(fetched.records))


class _Waiting:
    """One pull until its answer."""

    __slots__ = (
        "_connection",
        "_context",
        "_deadline_s",
        "_is_over",
        "_is_parked",
        "_pull",
        "_pulls",
        "_request",
        "_timer",
        "_wanted",
    )

    def __init__(
        self, pulls: Pulls, connection: Connection, request: Command, pull: Pull, wanted: QueueRead
    ) -> None:
        self._pulls = pulls
        self._connection = connection
        self._request = request
        self._pull = pull
        self._wanted = wanted
        self._deadline_s = pulls.clock.monotonic_s() + pull.wait_ms / 1_000
        self._timer: asyncio.TimerHandle | None = None
        self._is_parked = self._is_over = False
        # Others wake it, in calls of their own: it goes on as the caller's, who pays.
        self._context = copy_context()

    async def look_after(self, meter: Meter, wait_s: float) -> None:
        """The same as `look` when it is the caller's turn."""
        await meter.pause(wait_s)
        self.look()

    @property
    def key(self) -> GroupQueue:
        pull = self._pull
        return GroupQueue(pull.group, pull.topic, pull.queue_id)

    @property
    def offset(self) -> int:
        return self._pull.offset

    def moved(self, offset: int) -> None:
        """The reader goes on elsewhere."""
        self._reply(self._request.answer(Code.PULL_OFFSET_MOVED, _moved(offset)))

    def look(self) -> None:
        """Read, and answer or wait."""
        if self._is_over or not self._connection.is_open:
            return
        try:
            require_still()
            found = self._pulls.egress.read(self._wanted)
        except QuotaExceeded as exceeded:
            self._refuse_later(exceeded)
            return
        except AerobeeError as error:
            self._reply(refusal(self._request, error))
            return
        if isinstance(found, ColdRead):
            self._connection.begun()
            task = asyncio.get_running_loop().create_task(self._load(found), name="cold-pull")
            task.add_done_callback(_ended)
        else:
            self._take(found)

    async def _load(self, cold: ColdRead) -> None:
        try:
            found = await self._pulls.egress.load(cold)
            require_still()
        except QuotaExceeded as exceeded:
            self._refuse_later(exceeded)
        except AerobeeError as error:
            self._reply(refusal(self._request, error))
        else:
            self._take(found)
        finally:
            self._connection.finished()

    def _take(self, found: Fetched) -> None:
        if self._is_over:
            return
        if found.code is ReadCode.OK and not found.count:
            # A whole scan without a match: others run first, then it goes on after it.
            self._wanted = replace(self._wanted, offset=found.next_offset, is_scan=True)
            asyncio.get_running_loop().call_soon(self._look_again)
            return
        if found.code is ReadCode.NO_NEW_MESSAGE and found.suggested_broker_id is None:
            left_s = self._deadline_s - self._pulls.clock.monotonic_s()
            has_passed = self._wanted.offset > self._pull.offset
            if left_s > 0 and (self._is_parked or not has_passed):
                self._park(left_s, has_passed=has_passed)
                return
        self._pulls.delivered(self._pull, found)
        fields = {
            "suggestWhichBrokerId": str(found.suggested_broker_id or 0),
            "nextBeginOffset": str(found.next_offset),
            "minOffset": str(found.min_offset),
            "maxOffset": str(found.max_offset),
        }
        self._reply(self._request.answer(_CODES[found.code], fields, found.records))

    def _park(self, left_s: float, *, has_passed: bool) -> None:
        loop = asyncio.get_running_loop()
        if not self._is_parked:
            if not self._parks():
                return
            self._timer = loop.call_later(left_s, self.end)
        elif has_passed and left_s > _PASSED_TOLD_S and self._timer is not None:
            self._deadline_s -= left_s - _PASSED_TOLD_S
            self._timer.cancel()
            self._timer = loop.call_later(_PASSED_TOLD_S, self.end)
        self._wanted = replace(self._wanted, is_scan=False)
        self._pulls.egress.wait(self._pull.topic, self._pull.queue_id, self._wake)

    def _parks(self) -> bool:
        """False: it could not, and is answered."""
        if self._is_parked:
            return True
        try:
            self._pulls.enter(self)
        except Busy as busy:
            self._reply(refusal(self._request, busy))
            return False
        self._is_parked = True
        self._connection.when_closed(self._forget)
        return True

    def _wake(self) -> None:
        """The queue has grown. Not in this turn: many may wait for the same message."""
        if self._connection.is_paused:
            self._connection.when_writable(self._look_again)
        else:
            asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        self._context.run(self.look)

    def end(self) -> None:
        """Its time is over: it is told what is there now."""
        self._deadline_s = 0.0
        self._look_again()

    def _refuse_later(self, error: QuotaExceeded) -> None:
        """Clients ask again at once: they are told when their next chance has come."""
        answer = refusal(self._request, error)
        if not self._deadline_s or not self._parks():
            self._reply(answer)
            return
        if self._timer is not None:
            self._timer.cancel()
        pause_s = min(error.retry_after_ms / 1_000, _REFUSED_AFTER_S_MAX)
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._reply, answer)

    def _reply(self, answer: Command) -> None:
        if not self._is_over:
            self._forget()
            self._connection.reply(answer)

    def _forget(self) -> None:
        self._is_over = True
        if self._is_parked:
            self._is_parked = False
            self._pulls.leave(self)
            self._pulls.egress.forget(self._pull.topic, self._pull.queue_id, self._wake)
            self._connection.forget_closed(self._forget)
        if self._timer is not None:
            self._timer.cancel()


def _moved(offset: int) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(offset),
        "minOffset": "0",
        "maxOffset": str(offset),
    }


def _ended(task: asyncio.Task[None]) -> None:
    """A bug is raised where the loop reports it."""
    if not task.cancelled():
        task.result()
