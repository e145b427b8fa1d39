"""Consumer groups across terms: what the last run's lease record means for this one.

Owns: the record of this run. It is written before the first session is granted, again before a
session longer than all earlier ones, and at a planned end with everything that members hold. A run
without sessions grants nothing and leaves the last one's record as it is, unless less is unsure by
now. Before `begin` there are neither members nor leases: a slave has none.

Once the record of a planned end is being written, its run grants nothing more, whether or not the
record is confirmed: every reader takes it as the end of the run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from aerobee.broker.groups.members import Members
from aerobee.broker.groups.ownership import Ownership
from aerobee.broker.groups.queue_leases import Lease, QueueLeases
from aerobee.broker.groups.run_record import FIRST_RECORD, REJOIN_TIME_S, RunRecord, planned_end
from aerobee.runtime.errors import NotMaster
from aerobee.runtime.log import log_event
from aerobee.runtime.waiting import Turns

log = logging.getLogger(__name__)

_RUN_OVER = (
    "this replica is handing its groups to the next master, or will continue in a moment; ask "
    "the route again for the master and join again"
)

SaveRecord = Callable[[RunRecord], Awaitable[None]]


class CurrentRun:
    """Members and leases of this run, and the record that it leaves."""

    def __init__(
        self,
        write_file: Callable[[bytes], Awaitable[None]],
        *,
        on_lease_ended: Callable[[Lease], None] = lambda lease: None,
    ) -> None:
        """`write_file` replaces the lease file durably. `on_lease_ended` stops running pulls."""
        self._record = FIRST_RECORD
        self._is_recorded = False
        self._was_clean = True
        self._is_ending = False
        self._journal: SaveRecord | None = None
        self.write_file = write_file
        self._writing = Turns()
        self.members = Members()
        self.leases = QueueLeases(run_number=0)
        self.ownership = Ownership(self.members, self.leases, on_lease_ended=on_lease_ended)
        self.views_held_back_s = 0.0
        """How long clients are not told who is in which group."""

    def begin(
        self,
        previous: RunRecord,
        this_run: RunRecord,
        now_s: float,
        journal: SaveRecord,
        *,
        believes_members: bool,
    ) -> None:
        """From now on sessions and leases are granted under `this_run`. `journal` writes a record
        where all replicas read it.

        Unless `believes_members`, the log may end before messages that members have already
        fetched, and they must restart at their committed offsets.
        """
        self._record = this_run
        self._journal = journal
        self._is_recorded = False
        self._is_ending = False
        self._was_clean = previous.is_clean
        grace_s = previous.grace_ms / 1_000
        self.leases.begin_run(
            this_run.run_number,
            grace_end_s=now_s + grace_s if grace_s else None,
            believes_earlier_runs=believes_members,
        )
        self.views_held_back_s = min(grace_s, REJOIN_TIME_S)
        if previous.was_planned:
            self._take_over(previous, now_s)
        if grace_s:
            log_event(
                log,
                "queues are not granted yet: the last run did not stop cleanly",
                seconds=grace_s,
            )

    def _take_over(self, previous: RunRecord, now_s: float) -> None:
        for member in previous.members_left(now_s):
            self.members.restore(member)
        for lease in previous.leases:
            if self.members.get(lease.key.group, lease.client_id) is not None:
                self.leases.restore(lease)

    def end(self) -> None:
        """The run is over: this replica grants nothing from here on."""
        self._is_recorded = False
        self._journal = None
        self.members.clear()
        self.ownership.clear()

    async def promise_session(self, timeout_ms: int) -> None:
        """Returns once it is confirmed and on disk that sessions of this run may last this long.

        Raises:
            NotMaster, ReplicaBehind, NotWritable, Busy: it could not be recorded.
            StoreFailed: the disk failed.
        """
        if self._is_recorded and timeout_ms <= self._record.session_timeout_max_ms:
            return
        async with self._writing:
            before = self._record
            longest_ms = max(timeout_ms, before.session_timeout_max_ms)
            if not self._is_recorded or longest_ms > before.session_timeout_max_ms:
                self.check_granting()
                record = replace(before, session_timeout_max_ms=longest_ms)
                await self._write(record)
                if self._record is not before:
                    raise NotMaster(_RUN_OVER)  # the next run has its own record to write
                self._record = record
                self._is_recorded = True

    def check_granting(self) -> None:
        """Raises NotMaster once this run has left its members to the next one."""
        if self._is_ending:
            raise NotMaster(_RUN_OVER)

    async def record_end(self, now_s: float) -> None:
        """Record for the next run who is a member and holds what. This run grants nothing from here
        on.

        Raises as `promise_session`; if cancelled or late, the record may still take effect.
        """
        self._is_ending = True
        self.leases.stop_granting()
        async with self._writing:
            record = self.planned_end(now_s)
            if self._is_recorded or not self._was_clean:
                await self._write(record)
            else:
                await self.write_file(record.encode())

    async def _write(self, record: RunRecord) -> None:
        """Write the record where all replicas read it, and to the file."""
        if self._journal is None:
            raise NotMaster(_RUN_OVER)
        await self._journal(record)
        await self.write_file(record.encode())

    def planned_end(self, now_s: float) -> RunRecord:
        """What a planned end leaves to the next run: who is a member and holds what, and for how
        long former holders may still be active: from the run before this one, or of a queue that
        was revoked."""
        return planned_end(
            self._record,
            list(self.members.all_members()),
            self.leases.held(),
            now_s=now_s,
            unsure_until_s=self.leases.unsure_until_s,
        )
