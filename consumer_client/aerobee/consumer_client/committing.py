"""Commits of owned queues: one after the other, and again until a master took them.

Owns: the order of commits. A broker group that has no master for a while, or one that has not
confirmed our leases yet, is no failure of a commit; it is made again when there is one.
Invariants: an older commit never overtakes a newer one; nothing is committed for a queue that was
lost; what one master did not acknowledge is committed again to the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.message import MessageQueue
from aerobee.consumer_client.group_reads import GroupReads
from aerobee.consumer_client.offsets.store import Commit, OffsetStore
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
"""Made again, the commit may be taken."""

BACKOFF = Backoff(base_ms=50, max_ms=500)


@dataclass(slots=True, eq=False)
class Holding:
    """An owned queue and what its brokers said of it last."""

    owned: OwnedQueue
    reads: GroupReads
    committed_offset: int | None
    """None: nothing that is certain."""
    max_offset: int = 0


class Committing:
    """See the module."""

    def __init__(self, connection: ClusterConnection, store: OffsetStore) -> None:
        self._connection = connection
        self._store = store
        self._one_at_a_time = asyncio.Lock()
        self._confirmed = asyncio.Event()

    def on_confirmed(self) -> None:
        """Some master knows our leases now: whoever waits for that tries again."""
        self._confirmed.set()

    async def commit(
        self, holdings: Iterable[Holding], *, wait_ms: int
    ) -> Mapping[MessageQueue, errors.MqError]:
        """Commit the safe offsets; returns what was not committed, after up to `wait_ms`."""
        clock = self._connection.clock
        end_s = clock.monotonic_s() + wait_ms / 1_000
        failed: dict[MessageQueue, errors.MqError] = {}
        left = list(holdings)
        failures = 0
        while True:
            refused = await self._commit_once(left)
            failed.update(refused)
            left = [holding for holding in left if _may_pass(holding, refused)]
            left_s = end_s - clock.monotonic_s()
            if not left or left_s <= 0:
                return failed
            for holding in left:
                del failed[holding.owned.assignment.queue]
            delay_s = BACKOFF.delay_s(failures, self._connection.random)
            failures += 1
            self._confirmed.clear()
            try:
                async with asyncio.timeout(min(left_s, delay_s)):
                    await self._confirmed.wait()
            except TimeoutError:
                continue

    async def _commit_once(
        self, holdings: Iterable[Holding]
    ) -> Mapping[MessageQueue, errors.MqError]:
        async with self._one_at_a_time:
            due: dict[MessageQueue, tuple[Holding, Commit]] = {}
            refused: dict[MessageQueue, errors.MqError] = {}
            for holding in holdings:
                owned, assignment = holding.owned, holding.owned.assignment
                queue, safe_offset = assignment.queue, owned.safe_offset
                if safe_offset == holding.committed_offset:
                    continue
                if not assignment.trust.check_deadline() or owned.is_dropped:
                    refused[queue] = errors.LeaseExpired(
                        f"{queue} was lost before offset {safe_offset} could be committed: what "
                        "comes behind its committed offset is handled again"
                    )
                elif not assignment.trust.is_confirmed:
                    refused[queue] = errors.NoBrokerAvailable(
                        f"no master of broker {queue.broker_name!r} knows this member's leases "
                        "now: commit again later"
                    )
                else:
                    commit = Commit(queue, safe_offset, assignment.lease_epoch)
                    due[queue] = holding, commit
            if not due:
                return refused
            answers = await self._store.commit([commit for _, commit in due.values()])
            for queue, (holding, commit) in due.items():
                error = answers.get(queue)
                if error is None:
                    holding.committed_offset = commit.offset
                else:
                    refused[queue] = error
                    self._on_commit_refused(holding, commit, error)
            return refused

    def _on_commit_refused(self, holding: Holding, commit: Commit, error: errors.MqError) -> None:
        log_event(
            log,
            "commit refused",
            level=logging.DEBUG if isinstance(error, PASSING_ERRORS) else logging.WARNING,
            queue=commit.queue,
            offset=commit.offset,
            reason=str(error),
        )
        if isinstance(error, LEASE_ERRORS) and commit.lease_epoch:
            holding.owned.assignment.trust.on_refused(commit.queue, commit.lease_epoch, str(error))
        elif isinstance(error, (*ROUTE_ERRORS, errors.Unreachable)):
            self._connection.routes.invalidate(commit.queue.topic)


def _may_pass(holding: Holding, refused: Mapping[MessageQueue, errors.MqError]) -> bool:
    """Whether a commit that was refused may be taken when it is made again. One whose lease a
    master does not know may, for the master may be new: as long as the queue is still ours."""
    assignment = holding.owned.assignment
    error = refused.get(assignment.queue)
    if holding.owned.is_dropped:
        return False
    if isinstance(error, LEASE_ERRORS):
        return assignment.lease_epoch != 0
    return isinstance(error, PASSING_ERRORS)
