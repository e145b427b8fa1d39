"""Commits of owned queues: to each broker group one at a time, repeated until a master accepts
them.

Owns: the order of commits. A broker group that has no master for a while, or whose master has not
confirmed our leases yet, does not fail a commit; it is repeated once there is one. Broker groups do
not wait for each other, so one that hangs does not delay the queues of others; and a commit made
while a call to a group is running goes with the next one, so that many queues cost a hanging group
no more time than one.
Invariants: an older commit never overtakes a newer one; nothing is committed for a lost queue; what
one master did not acknowledge is committed again to the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.group_calls import OVERSLEPT_S
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.background_tasks import wait_event
from aerobee.consumer_client.group_reads import GroupReads
from aerobee.consumer_client.owned_queue import OwnedQueue
from aerobee.runtime import errors
from aerobee.runtime.log import log_event
from aerobee.runtime.retry import Backoff

log = logging.getLogger(__name__)

LEASE_ERRORS = (errors.LeaseExpired, errors.LeaseHeld, errors.UnknownMember)
ROUTE_ERRORS = (errors.TopicNotFound, errors.QueueNotFound, errors.NotMaster)
PASSING_ERRORS = (
    errors.NotMaster,
    errors.StaleEpoch,
    errors.ReplicaBehind,
    errors.NoBrokerAvailable,
    errors.ShuttingDown,
    errors.Unreachable,
    errors.DeadlineExceeded,
)
"""If repeated, the commit may succeed."""

BACKOFF = Backoff(base_ms=50, max_ms=500)


class Commit(NamedTuple):
    """Everything below `offset` of the queue is done."""

    queue: MessageQueue
    offset: int
    lease_epoch: int
    """0 without a lease."""


class OffsetStore(Protocol):
    """Committed offsets of one group."""

    async def read(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """The committed offsets; queues without one are left out.

        Raises:
            AerobeeError: the store cannot be read now.
        """
        ...

    async def begin(
        self, offsets: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, errors.AerobeeError]:
        """Store offsets of one broker's queues where none is stored yet; the first one stored wins.
        Returns the queues that were refused or not reached, and why."""
        ...

    async def commit(self, commits: Sequence[Commit]) -> Mapping[MessageQueue, errors.AerobeeError]:
        """Store offsets of one broker's queues; returns those refused or not reached, and why."""
        ...


@dataclass(slots=True, eq=False)
class Holding:
    """An owned queue and its brokers' last answers about it."""

    owned: OwnedQueue
    reads: GroupReads
    committed_offset: int | None
    """None: nothing certain."""
    max_offset: int = 0
    has_read: bool = False
    """Messages were read at its position, which the user did not just choose."""
    refusal: errors.AerobeeError | None = None
    """Why the last commit was refused; None: it was accepted, or there was none."""

    @property
    def is_committed(self) -> bool:
        """Whether everything that is finished is certainly committed."""
        return self.owned.safe_offset == self.committed_offset


Refusals = Mapping[Holding, errors.AerobeeError]


@dataclass(slots=True, eq=False)
class _Request:
    """A caller waiting for the commit of these queues."""

    holdings: Sequence[Holding]
    refused: Refusals | None = None
    """None: not made yet."""


@dataclass(slots=True, eq=False)
class _Line:
    """The pending commits of one broker group."""

    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_Request] = field(default_factory=list)


class Committing:
    """The only way to commit offsets of owned queues."""

    def __init__(self, connection: ClusterConnection, store: OffsetStore, *, group: str) -> None:
        self._group = group
        self._connection = connection
        self._store = store
        self._lines: dict[str, _Line] = {}
        self._confirmed = asyncio.Event()

    def on_confirmed(self) -> None:
        """A master now knows our leases: commits that wait for that are repeated."""
        self._confirmed.set()

    async def commit(
        self, holdings: Iterable[Holding], *, wait_ms: int
    ) -> Mapping[MessageQueue, errors.AerobeeError]:
        """Commit the safe offsets; returns what was not committed after at most `wait_ms`."""
        by_broker: dict[str, list[Holding]] = {}
        for holding in holdings:
            by_broker.setdefault(holding.owned.assignment.queue.broker_name, []).append(holding)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(
                    self._commit_at(name, held, wait_ms / 1_000), name=f"commits:{name}"
                )
                for name, held in by_broker.items()
            ]
        failed: dict[MessageQueue, errors.AerobeeError] = {}
        for task in running:
            failed.update(
                (holding.owned.assignment.queue, error) for holding, error in task.result().items()
            )
        return failed

    async def _commit_at(
        self, broker_name: str, holdings: Sequence[Holding], wait_s: float
    ) -> Refusals:
        clock = self._connection.clock
        failed: dict[Holding, errors.AerobeeError] = {}
        left = holdings
        failures = 0
        end_s = clock.monotonic_s() + wait_s
        may_oversleep = wait_s > 0
        while True:
            refused = await self._commit_once(broker_name, left)
            failed.update({each: _known_better(each, error) for each, error in refused.items()})
            left = [holding for holding, error in refused.items() if _may_pass(holding, error)]
            left_s = end_s - clock.monotonic_s()
            if left_s < -OVERSLEPT_S and may_oversleep:
                # This process was suspended: for everyone else the time has not passed.
                may_oversleep = False
                end_s = clock.monotonic_s() + wait_s
                left_s = wait_s
            if not left or left_s <= 0:
                return failed
            for holding in left:
                del failed[holding]
            delay_s = BACKOFF.delay_s(failures, self._connection.random)
            failures += 1
            self._confirmed.clear()
            await wait_event(self._confirmed, min(left_s, delay_s))

    async def _commit_once(self, broker_name: str, holdings: Sequence[Holding]) -> Refusals:
        """One call, shared by everyone who waits for one."""
        line = self._lines.setdefault(broker_name, _Line())
        request = _Request(holdings)
        line.waiting.append(request)
        try:
            async with line.one_at_a_time:
                # Commits made at this same moment are included.
                await asyncio.sleep(0)
                if request.refused is None:
                    served, line.waiting = {request, *line.waiting}, []
                    together = {holding for each in served for holding in each.holdings}
                    refused = await self._call(together)
                    for each in served:
                        each.refused = {
                            holding: refused[holding]
                            for holding in each.holdings
                            if holding in refused
                        }
        finally:
            if request in line.waiting:
                line.waiting.remove(request)
        assert request.refused is not None, "it was served"
        return request.refused

    async def _call(self, holdings: Iterable[Holding]) -> Refusals:
        due: dict[MessageQueue, tuple[Holding, Commit]] = {}
        refused: dict[Holding, errors.AerobeeError] = {}
        for holding in holdings:
            owned, assignment = holding.owned, holding.owned.assignment
            queue, safe_offset = assignment.queue, owned.safe_offset
            if holding.is_committed:
                continue
            if not assignment.trust.check_deadline() or owned.is_dropped:
                refused[holding] = _lost(queue, safe_offset)
            elif not assignment.trust.is_confirmed:
                refused[holding] = errors.NoBrokerAvailable(
                    f"no master of broker {queue.broker_name!r} knows this member's leases "
                    "yet: commit again later"
                )
            else:
                due[queue] = holding, Commit(queue, safe_offset, assignment.lease_epoch)
        answers = await self._store.commit([commit for _, commit in due.values()]) if due else {}
        for queue, (holding, commit) in due.items():
            error = answers.get(queue)
            if error is None:
                holding.committed_offset, holding.refusal = commit.offset, None
            else:
                refused[holding] = error
                self._on_commit_refused(holding, commit, error)
        for holding, error in refused.items():
            holding.refusal = error
        return refused

    def _on_commit_refused(
        self, holding: Holding, commit: Commit, error: errors.AerobeeError
    ) -> None:
        log_event(
            log,
            "commit refused",
            level=logging.DEBUG if isinstance(error, PASSING_ERRORS) else logging.WARNING,
            group=self._group,
            queue=commit.queue,
            offset=commit.offset,
            reason=error,
        )
        if isinstance(error, LEASE_ERRORS) and commit.lease_epoch:
            holding.owned.assignment.trust.on_refused(commit.queue, commit.lease_epoch, str(error))
        elif isinstance(error, (*ROUTE_ERRORS, errors.Unreachable)):
            self._connection.routes.invalidate(commit.queue.topic)


def _lost(queue: MessageQueue, safe_offset: int) -> errors.LeaseExpired:
    return errors.LeaseExpired(
        f"{queue} was lost before offset {safe_offset} could be committed: messages from its "
        "committed offset on are handled again"
    )


def _known_better(holding: Holding, error: errors.AerobeeError) -> errors.AerobeeError:
    """A queue that was lost while its commit was in flight (this process was suspended) stays lost,
    whatever the result of the call."""
    assignment = holding.owned.assignment
    if holding.owned.is_dropped and assignment.lease_epoch and isinstance(error, PASSING_ERRORS):
        return _lost(assignment.queue, holding.owned.safe_offset)
    return error


def _may_pass(holding: Holding, error: errors.AerobeeError) -> bool:
    """Whether a refused commit may succeed when repeated. One whose lease is unknown to a master
    may, because the master may be new, as long as the queue is still ours."""
    if holding.owned.is_dropped:
        return False
    if isinstance(error, LEASE_ERRORS):
        return holding.owned.assignment.lease_epoch != 0
    return isinstance(error, PASSING_ERRORS)
