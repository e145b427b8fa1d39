"""Changes the in-sync set: asks the registry for what the term proposes, until it has an answer.

Owns: at most one proposal under way. While its outcome is unknown the same is requested again, and
the term counts both sets; requesting twice is harmless, as it is a compare-and-swap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aerobee.broker.replication.duties import Duty
from aerobee.broker.replication.master_term import MasterTerm, Proposal
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.broker.replication.roles import ReplicatedLog, Roles
from aerobee.broker.replication.stream_tasks import Wake
from aerobee.runtime.call_context import RequestNames, request_scope
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, InvalidArgument, StaleEpoch
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

AlterInSyncSet = Callable[[int, Proposal], Awaitable[ReplicaSetView]]
"""(epoch, proposal) -> the record after it. Raises AerobeeError: StaleEpoch or InvalidArgument if
the change was refused, anything else if its outcome is unknown."""

UNKNOWN_PAUSE_S = 0.2
HEARING_S = 0.1
"""Wait before a replica leaves the set as overdue: what it said meanwhile is read first."""
LATE_S_MIN = 0.3
"""If that pause took longer than this and than half of the allowed lag, the process stood still."""


class InSyncProposer(Duty):
    """`run` it as a task; it sleeps unless this replica leads others."""

    def __init__(
        self,
        roles: Roles,
        store: ReplicatedLog,
        clock: Clock,
        alter: AlterInSyncSet,
        names: RequestNames,
    ) -> None:
        """`names`: the names of changes in the logs of the nameservers."""
        self._roles = roles
        self._store = store
        self._clock = clock
        self._alter = alter
        self._names = names
        self._term: MasterTerm | None = None
        self._news = Wake()

    def begin(self, term: MasterTerm) -> None:
        self._term = term
        self.wake()

    def end(self) -> None:
        self._term = None

    def wake(self) -> None:
        """A replica joined, left, or caught up."""
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            term = self._term
            if term is None or self._roles.is_alone or not self._roles.may_act():
                await self._news.wait()
                continue
            now_s = self._clock.monotonic_s()
            wait_s = term.next_look_s(now_s) - now_s
            if wait_s <= 0:
                await self._hear_replicas(term)
                if self._term is not term:
                    continue
            proposal = self._due(term)
            if proposal is not None:
                with request_scope(self._names.next()):
                    await self._ask(term, proposal)
            elif wait_s > 0:
                await self._news.wait(wait_s)

    async def _hear_replicas(self, term: MasterTerm) -> None:
        """Returns once everything that the replicas have sent so far is known, even if this process
        was stopped for a while."""
        late_s = max(term.policy.in_sync_lag_s / 2, LATE_S_MIN)
        while True:
            began_s = self._clock.monotonic_s()
            await asyncio.sleep(HEARING_S)
            if self._clock.monotonic_s() - began_s <= late_s:
                return

    def _due(self, term: MasterTerm) -> Proposal | None:
        if not self._roles.may_act():
            return None
        again = term.proposal_again()
        if again is not None:
            return again
        awaited = term.awaited
        proposal = term.propose(self._store.appended_end, self._clock.monotonic_s())
        if awaited - term.awaited - term.counted:
            self._roles.replica_given_up()
        return proposal

    async def _ask(self, term: MasterTerm, proposal: Proposal) -> None:
        wanted = sorted(name.broker_id for name in proposal.in_sync)
        try:
            record = await self._alter(term.epoch, proposal)
        except InvalidArgument as error:
            log_event(log, "in-sync set refused", level=logging.ERROR, set=wanted, reason=error)
            term.proposal_refused(self._clock.monotonic_s())
            if term.is_proposing:
                await asyncio.sleep(UNKNOWN_PAUSE_S)
        except StaleEpoch as error:
            # The larger set still counts until it is known who is master.
            log_event(log, "in-sync set refused", level=logging.WARNING, set=wanted, reason=error)
            self._roles.heard_epoch(term.epoch + 1)
            await asyncio.sleep(UNKNOWN_PAUSE_S)
        except AerobeeError as error:
            log_event(
                log,
                "in-sync set may not have changed",
                level=logging.WARNING,
                set=wanted,
                reason=error,
            )
            await asyncio.sleep(UNKNOWN_PAUSE_S)
        else:
            log_event(log, "in-sync set", epoch=record.epoch, set=_ids(record))
            self._roles.hear_replica_set(record)


def _ids(record: ReplicaSetView) -> list[int]:
    return sorted(name.broker_id for name in record.in_sync)
