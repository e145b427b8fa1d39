"""What each group will consume next, and who may change it.

Owns: the rules of committing (owner, range) over the offset journal. Synchronous, on the loop.
Invariants: an offset is moved only by the queue's present owner, without a lease while nobody owns
it, or by an operator's reset; so a member that lost its queue cannot move it.
The first commit decides, once, where a group begins on a queue.
Without a reset no offset moves back: a lower commit, for example of a member that went back to
reread something, is treated as outdated and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.ownership import Claim, lease_expired
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.entries import OffsetsRemoved
from aerobee.broker.offsets.journal import OffsetJournal
from aerobee.broker.offsets.merge import NO_LEASE, Change, ChangeKind, is_fenced
from aerobee.broker.offsets.writer import OffsetWriter
from aerobee.broker.sending.guard import Guard
from aerobee.domain import names
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy, InvalidArgument
from aerobee.runtime.log import log_event
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable, Tried
from aerobee.store.engine.tables.finished_ranges import QueueKey
from aerobee.store.format.dead_letter_fields import GroupNameTooLong, retry_topic

log = logging.getLogger(__name__)

BEGIN_TIMEOUT_S = 1.0
"""How long a caller waits for a new master to know everything."""
IGNORED_NOTED_MAX = 10_000
"""Number of queues for which it is remembered that a lower commit was logged."""


class ConsumerOffsets:
    """Confirmed committed offsets by group, topic and queue id."""

    def __init__(
        self,
        table: ConsumerOffsetTable,
        journal: OffsetJournal,
        coordinator: GroupCoordinator,
        guard: Guard,
        clock: Clock,
        *,
        queue_max: Callable[[str, int], int],
        admit: Callable[[str], None] = lambda group: None,
    ) -> None:
        """`queue_max`: a queue's maximum offset, which the next message will get. `admit` is called
        for each group that begins on a queue, and raises LimitReached if there are too many."""
        self._table = table
        self._journal = journal
        self._coordinator = coordinator
        self._guard = guard
        self._clock = clock
        self._queue_max = queue_max
        self._admit = admit
        self._ignored: dict[GroupQueue, int] = {}

    def commit(
        self, key: GroupQueue, offset: int, claim: Claim, client_id: str = ""
    ) -> asyncio.Future[None] | None:
        """Set the next offset to consume. Acknowledge it when the returned future is done; None:
        now.

        A group's first commit on a queue must be on disk first: if it were lost, the next member
        would start where new groups start, possibly after messages that were never delivered.

        Raises:
            NotMaster, ReplicaBehind, NotWritable, Busy: this broker takes no commits now.
            LeaseExpired: the claim is not under the present lease, or POP no longer has the queue.
            LeaseHeld: no lease was presented (0), but a member holds one, or POP has the queue.
            TopicNotFound, QueueNotFound, InvalidArgument: no such queue, or an impossible offset.
            LimitReached: the group is new, and there are too many.
        """
        writer = self._journal.writer()
        self._check(key, offset)
        self._check_claim(writer, key, claim)
        standing = writer.standing(key)
        if standing is not None and offset <= standing.offset:
            if offset < standing.offset:
                self._note_ignored(key, offset, standing.offset, claim.lease_epoch)
            return writer.waiting_for(key)
        if standing is None:
            self._admit(key.group)
            self.begin_retries(key.group)
        change = Change(ChangeKind.COMMIT, offset, claim.lease_epoch)
        return writer.change(key, change, client_id, is_durable=standing is None)

    def claimed(self, key: GroupQueue, claim: Claim) -> OffsetWriter:
        """Where to record what its reader finishes out of order, in the same turn of the loop.

        Raises:
            NotMaster, ReplicaBehind, Busy, LeaseExpired, LeaseHeld, TopicNotFound, QueueNotFound,
            InvalidArgument, LimitReached: as `commit`.
        """
        writer = self._journal.writer()
        names.check_group_changeable(key.group)
        self._guard.check_queue(key.topic, key.queue_id)
        self._check_claim(writer, key, claim)
        self._admit(key.group)
        return writer

    def _check_claim(self, writer: OffsetWriter, key: GroupQueue, claim: Claim) -> None:
        """Check that messages of the queue may be finished with this claim."""
        self._coordinator.expire(self._clock.monotonic_s())
        refusal = self._coordinator.ownership.may_commit(key, claim)
        if refusal is not None:
            raise refusal
        _check_not_removing(writer, key)
        standing = writer.standing(key)
        epoch = claim.lease_epoch
        if is_fenced(standing, epoch) or self._is_of_former_life(key, epoch):
            raise lease_expired(key, epoch)

    def begin(
        self, key: GroupQueue, offset: int, client_id: str = ""
    ) -> asyncio.Future[None] | None:
        """Set where the group begins on this queue, if it never committed there; otherwise nothing
        changes. The first commit decides, with or without a lease. Returns as `commit`.

        Raises:
            NotMaster, ReplicaBehind, NotWritable, Busy, TopicNotFound, QueueNotFound,
            InvalidArgument: as `commit`.
        """
        writer = self._journal.writer()
        self._check(key, offset)
        _check_not_removing(writer, key)
        if writer.standing(key) is not None:
            return writer.waiting_for(key)
        self._admit(key.group)
        self.begin_retries(key.group)
        change = Change(ChangeKind.COMMIT, offset, NO_LEASE)
        return writer.change(key, change, client_id, is_durable=True)

    def begin_retries(self, group: str) -> None:
        """A group unknown to this broker begins at the end of its retry topic: what is there was
        sent back by a deleted group of the same name. Its own copies come later, when it is known,
        since sending back leaves an entry.

        Raises:
            NotMaster, ReplicaBehind, NotWritable, Busy: as `commit`.
        """
        writer = self._journal.writer()
        try:
            key = GroupQueue(group, retry_topic(group), 0)
        except GroupNameTooLong:
            return
        end = self._queue_max(key.topic, key.queue_id)
        everything = OffsetsRemoved(group, None, None, self._clock.now_ms(), "")
        if end and writer.standing(key) is None and not writer.selected(everything):
            writer.change(key, Change(ChangeKind.COMMIT, end, NO_LEASE), is_durable=True)

    def reset(self, key: GroupQueue, offset: int) -> asyncio.Future[None]:
        """An operator sets the offset; acknowledge it when the returned future is done. The holder
        then loses its lease and restarts from there.

        Raises:
            NotMaster, ReplicaBehind, NotWritable, Busy, TopicNotFound, QueueNotFound,
            InvalidArgument: as `commit`.
        """
        writer = self._journal.writer()
        self._check(key, offset)
        _check_not_removing(writer, key)
        self._admit(key.group)
        self.begin_retries(key.group)
        granted = self._coordinator.ownership.leases.latest_epoch
        return writer.change(key, Change(ChangeKind.RESET, offset, granted), is_durable=True)

    @property
    def is_ready(self) -> bool:
        """Whether this broker is a master that knows all offsets and may set them."""
        return self._journal.is_ready

    def keep_from(self, topic: str, queue_id: int, offset: int) -> asyncio.Future[None] | None:
        """A queue keeps nothing before `offset`; it is so when the returned future is done. None:
        the topic is ending, so nothing is noted.

        Raises:
            NotMaster, ReplicaBehind, NotWritable, Busy: as `commit`.
        """
        writer, key = self._journal.writer(), GroupQueue(names.KEPT_FROM_GROUP, topic, queue_id)
        if writer.is_removing(key):
            return None
        return writer.change(key, Change(ChangeKind.COMMIT, offset))

    def is_ended(self, key: GroupQueue, lease_epoch: int) -> bool:
        """Whether a presented lease dates from before a reset or another member's commit: its
        member must restart from the committed offset. Raises as `check_master`."""
        standing = self._journal.writer().standing(key)
        return is_fenced(standing, lease_epoch) or self._is_of_former_life(key, lease_epoch)

    def _is_of_former_life(self, key: GroupQueue, lease_epoch: int) -> bool:
        """Whether the lease was granted before the topic was deleted."""
        end = self._table.topic_ends.get(key.topic)
        return end is not None and 0 < lease_epoch <= end.lease_epoch

    def query(self, key: GroupQueue) -> int | None:
        """None if the group never committed on this queue."""
        return self._table.query(*key)

    def last_client(self, key: GroupQueue) -> str:
        """The client that committed last on this queue, or was noted; empty: unknown."""
        return self._table.last_client(*key)

    def note_client(self, key: GroupQueue, client_id: str) -> asyncio.Future[None] | None:
        """Note that this client reads the queue now, for a later master; done when that is
        confirmed. None: the group never committed there, so nothing is noted.

        Raises:
            NotMaster, ReplicaBehind, NotWritable, Busy: as `commit`.
        """
        writer = self._journal.writer()
        standing = writer.standing(key)
        if standing is None:
            return None
        return writer.change(key, Change(ChangeKind.COMMIT, standing.offset, NO_LEASE), client_id)

    def tried(self, key: GroupQueue) -> Tried | None:
        """Which message of the queue, if any, is being retried in order."""
        return self._table.tried.get(QueueKey(*key))

    def of_group(self, group: str) -> list[tuple[GroupQueue, int]]:
        """Everything that the group ever committed here, sorted by queue."""
        return sorted(
            (GroupQueue(group, topic, queue_id), offset)
            for topic, queues in self._table.of_group(group).items()
            for queue_id, offset in queues.items()
        )

    def groups(self) -> list[str]:
        """Groups that ever committed here, sorted."""
        return self._table.groups()

    def has_committed(self, group: str, topic: str) -> bool:
        """Whether the group ever committed on any queue of the topic here."""
        return self._table.has_committed(group, topic)

    async def begun(self) -> None:
        """Waits briefly for a replica that has just become master, to save callers a retry."""
        if not self._journal.is_ready:
            await self._journal.begun(BEGIN_TIMEOUT_S)

    async def begun_for(self, group: str) -> None:
        """As `begun`, for a request that names a group. Raises InvalidArgument: an illegal name."""
        names.check_group_name(group)
        await self.begun()

    async def acting_for(self, group: str) -> None:
        """As `begun_for`, for a request that only a master can answer. Raises as `check_master`,
        and InvalidArgument."""
        await self.begun_for(group)
        self.check_master()

    def check_grantable(self, key: GroupQueue) -> None:
        """Check that a member may request this queue. A lease granted while its offset is being
        deleted would be older than the deletion; presented to the next run, it would bring the
        offset back. Raises as `check_master`, and Busy."""
        self.check_master()
        _check_not_removing(self._journal.writer(), key)

    def check_known(self) -> None:
        """Check that this replica may report what it knows of groups. A slave's offsets may be
        slightly out of date. Raises ReplicaBehind, NotMaster, NotWritable."""
        self._guard.check_confirmed()
        self._journal.check_known()

    def check_master(self) -> None:
        """Check that members may join, hold queues and commit here. Raises as `commit`, and
        ShuttingDown, StoreFailed."""
        self._guard.check_acting()
        self._journal.check_granting()

    def _check(self, key: GroupQueue, offset: int) -> None:
        names.check_group_changeable(key.group)
        self._guard.check_queue(key.topic, key.queue_id)
        queue_max = self._queue_max(key.topic, key.queue_id)
        if not 0 <= offset <= queue_max:
            raise InvalidArgument(
                f"offset {offset} is out of range: queue {key.queue_id} of topic {key.topic} ends "
                f"at {queue_max}"
            )

    def _note_ignored(self, key: GroupQueue, offset: int, standing: int, lease_epoch: int) -> None:
        """Once per holder: it may repeat the commit at every interval."""
        if self._ignored.get(key) == lease_epoch:
            return
        if len(self._ignored) >= IGNORED_NOTED_MAX:
            self._ignored.clear()
        self._ignored[key] = lease_epoch
        log_event(
            log,
            "a commit below the committed offset changes nothing; reset the offset to go back",
            group=key.group,
            topic=key.topic,
            queue_id=key.queue_id,
            offset=offset,
            committed=standing,
        )


def _check_not_removing(writer: OffsetWriter, key: GroupQueue) -> None:
    if writer.is_removing(key):
        raise Busy(
            f"the offset of group {key.group} on queue {key.queue_id} of topic {key.topic} is "
            "being deleted; try again in a moment"
        )
