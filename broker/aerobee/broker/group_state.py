"""Consumer groups across restarts: what the lease file of the last run means for this one.

Owns: the lease record of this run. It is rewritten before a session is granted that outlasts all
earlier ones, and at a clean stop with everything that members hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from aerobee.broker.consumer_groups import ConsumerGroups
from aerobee.broker.lease_journal import LeaseRecord, clean_record
from aerobee.broker.queue_leases import QueueLeases
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

REJOIN_TIME_S = 3.0
"""Clients try to reconnect at least every 2 s: by then whoever is alive has joined again."""

WriteRecord = Callable[[bytes], Awaitable[None]]


class GroupState:
    """Members and leases as this run begins, and the record that it leaves."""

    def __init__(
        self, previous: LeaseRecord, this_run: LeaseRecord, now_s: float, write: WriteRecord
    ) -> None:
        """`write` replaces the lease file durably."""
        self._record = this_run
        self._write = write
        self._writing = asyncio.Lock()
        self.groups = ConsumerGroups()
        grace_s = 0.0 if previous.is_clean else previous.session_timeout_max_ms / 1_000
        self.leases = QueueLeases(
            run_number=this_run.run_number,
            grace_end_s=now_s + grace_s if grace_s else None,
            # After a power failure the log may end before what members have already fetched: they
            # must begin again at their committed offsets.
            believes_earlier_runs=previous.boot_id == this_run.boot_id,
        )
        self.views_held_back_s = min(grace_s, REJOIN_TIME_S)
        """How long nobody is told who is in which group."""
        if previous.is_clean:
            self._take_over(previous, now_s)
        elif grace_s:
            log_event(log, "queue leases wait: the last run did not stop cleanly", seconds=grace_s)

    def _take_over(self, previous: LeaseRecord, now_s: float) -> None:
        """Members of a run that stopped cleanly have a whole session to come back."""
        for member in previous.members:
            self.groups.join(replace(member, last_heartbeat_s=now_s))
        for lease in previous.leases:
            if self.groups.get(lease.key.group, lease.client_id) is not None:
                self.leases.restore(lease)

    async def promise_session(self, timeout_ms: int) -> None:
        """Return once it is on disk that sessions of this run may last so long."""
        if timeout_ms <= self._record.session_timeout_max_ms:
            return
        async with self._writing:
            if timeout_ms > self._record.session_timeout_max_ms:
                record = replace(self._record, session_timeout_max_ms=timeout_ms)
                await self._write(record.encode())
                self._record = record

    async def record_clean_stop(self) -> None:
        """Leave to the next run who is a member and holds what."""
        record = clean_record(self._record, list(self.groups.all_members()), self.leases.held())
        if self.leases.grace_end_s is not None or self.leases.next_block_end_s() is not None:
            # Former holders may still be out there: of the run before this one, or of a queue that
            # was taken from them.
            record = replace(self._record, is_clean=False)
        async with self._writing:
            await self._write(record.encode())
