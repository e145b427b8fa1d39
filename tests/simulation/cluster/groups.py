"""A master's consumer groups: one term of the offset journal, its members and their leases.

Members, leases and their interaction are the real coordinator's. The rest follows the real journal:
no client is served before everything in the log is confirmed and applied, a run's record is
confirmed before its first member joins, and offsets change as records are confirmed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.members import Member, Members
from aerobee.broker.groups.membership import GroupView
from aerobee.broker.groups.ownership import Claim, Owner, Ownership
from aerobee.broker.groups.queue_leases import GroupQueue, Lease, QueueLeases
from aerobee.broker.groups.run_record import (
    FIRST_RECORD,
    RunRecord,
    is_log_whole,
    newest_record,
    next_run,
)
from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.offsets.entries import Entry, LeaseEntry, OffsetEntry, OffsetsRemoved
from aerobee.broker.offsets.merge import Change, ChangeKind, Standing, is_fenced, merge
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.broker.offsets.writer import OffsetWriter
from aerobee.runtime.errors import AerobeeError, NotMaster
from tests.simulation.cluster.derived import TOPIC
from tests.simulation.cluster.log import JOURNAL_QUEUE, Record
from tests.simulation.cluster.network import Stream

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker
    from tests.simulation.cluster.waiting import Waiting

GROUP = "G"
SESSION_S = 1.2
JOURNAL_RECORD_BYTES = 60


class Joining(NamedTuple):
    """A member's first message on a stream."""

    client_id: str
    held: tuple[tuple[GroupQueue, int], ...]
    sequence: int


class MemberStream:
    """A member's stream, as the coordinator sees it."""

    def __init__(self, groups: Groups, stream: Stream, member: Member) -> None:
        self._groups = groups
        self.stream = stream
        self.member = member

    def on_members(self, view: GroupView) -> None:
        """Members of the simulation do not ask who else is there."""

    def on_granted(self, lease: Lease) -> None:
        groups = self._groups
        broker = groups.broker
        broker.world.checks.offsets.granted(broker, lease)
        standing = broker.derived.journal.standing(lease.key)
        offset = 0 if standing is None else standing.offset
        broker.world.checks.offsets.told(broker, lease.key, offset)
        self.stream.send(broker, broker.world.on_granted, lease, offset)

    def on_revoked(self, lease: Lease, reason: str) -> None:
        broker = self._groups.broker
        self.stream.send(broker, broker.world.on_revoked, lease)

    def on_ended(self, error: AerobeeError) -> None:
        self.stream.close(self._groups.broker)


class Groups:
    """The groups of one term."""

    def __init__(self, broker: Broker, epoch: int, start: int, *, is_unclean: bool) -> None:
        self.broker = broker
        self._epoch = epoch
        self._start = start
        self._is_unclean = is_unclean
        self._has_begun = False
        self._is_ready = False
        self._record: RunRecord = FIRST_RECORD
        self._is_recorded = False
        self._was_clean = True
        self._is_recording = False
        self._joining: list[tuple[Stream, Joining, float]] = []
        self._streams: dict[Stream, MemberStream] = {}
        self._answers: deque[tuple[int, Callable[[], None]]] = deque()
        self._closed_until_s = 0.0
        self._removing: set[GroupQueue] = set()
        self.offsets: OffsetWriter | None = None
        """For callers that finish messages out of order; set once everything is known."""
        self._written: WrittenOffsets | None = None
        self._ahead: dict[GroupQueue, Standing | None] = {}
        """The state once everything written is in effect."""
        self._leases = QueueLeases(run_number=0)
        members = Members()
        self._ownership = Ownership(members, self._leases, on_lease_ended=lambda lease: None)
        self._ownership.exclude_popped(
            lambda key: broker.waiting is not None and broker.waiting.is_popped(key)
        )
        self.coordinator = GroupCoordinator(
            members,
            self._ownership,
            call_soon=lambda push: None,
            is_acting=self._acts,
        )

    def _acts(self) -> bool:
        master = self.broker.master
        return master is not None and master.acts

    # ------------------------------------------------------------------------------ the term

    def look(self) -> None:
        """More may be confirmed: apply it, and begin the run when everything is."""
        broker = self.broker
        checks = broker.world.checks
        for record in broker.derived.apply(broker.confirmed_end):
            for entry in record.entries:
                if isinstance(entry, OffsetEntry):
                    checks.offsets.applied(broker, record.number, entry)
                    if entry.change.kind is ChangeKind.RESET and self._is_ready:
                        self._ownership.revoke(entry.key, "reset")
                elif isinstance(entry, OffsetsRemoved):
                    checks.offsets.removed(entry.queue, record.number)
                    self._removing.discard(entry.queue)
                    if self._is_ready:
                        self._ownership.revoke(entry.queue, "deleted")
            while self._answers and self._answers[0][0] <= record.number:
                self._answers.popleft()[1]()
        if not self._has_begun and self._acts():
            is_known = broker.confirmed_end >= self._start and broker.derived.has_applied_all
            if is_known or not broker.world.variant.waits_for_journal:
                self._begin_run()

    def _begin_run(self) -> None:
        self._has_begun = True
        broker = self.broker
        previous = newest_record(broker.derived.journal.lease, broker.previous_run)
        self._record = this_run = next_run(
            previous,
            f"boot{broker.folder.boots}",
            epoch=self._epoch,
            broker_id=broker.folder.broker_id,
            run_number_min=broker.run_number_min,
        )
        self._was_clean = previous.is_clean
        grace_s = previous.grace_ms / 1_000 if broker.world.variant.waits_for_grace else 0.0
        now_s = broker.clock_s()
        broker.world.checks.offsets.begin(broker)
        self._leases.begin_run(
            this_run.run_number,
            grace_end_s=now_s + grace_s if grace_s else None,
            believes_earlier_runs=not self._is_unclean and is_log_whole(previous, this_run),
        )
        if previous.was_planned:
            for member in previous.members_left(now_s):
                self.coordinator.members.restore(member)
            for lease in previous.leases:
                if self.coordinator.members.get(GROUP, lease.client_id) is not None:
                    self._leases.restore(lease)
        self._is_ready = True
        if broker.waiting is not None:
            self._written = written = WrittenOffsets(self, broker.waiting)
            self.offsets = written.begin(broker.derived.journal)
            broker.waiting.send_backs.wake()
        broker.world.note("%s: run %s of leases, after %s", broker.instance, this_run, previous)

    def tick(self) -> None:
        self.look()
        if self._is_ready:
            self.coordinator.expire(self.broker.clock_s())

    def end(self) -> None:
        """The term is over: members must look elsewhere."""
        for stream in [*self._streams, *(one[0] for one in self._joining)]:
            stream.close(self.broker)
        self._streams.clear()
        self._joining.clear()
        self._end_writing()

    def _end_writing(self) -> None:
        self.offsets = None
        if self._written is not None:
            self._written.end()

    # ------------------------------------------------------------------------------ the journal

    def write(
        self,
        entries: tuple[Entry | ImageEnd, ...],
        then: Callable[[], None],
        *,
        is_pushed: bool = True,
    ) -> None:
        """Append a record; `then` is called when it is in effect. `is_pushed`: it is published at
        once, not when the caller says so."""
        master = self.broker.master
        assert master is not None, "only a master writes"
        number = self.broker.derived.queue_ends.get(JOURNAL_QUEUE, 0)
        size = JOURNAL_RECORD_BYTES * len(entries)
        for entry in entries:
            if isinstance(entry, OffsetEntry):
                self._ahead[entry.key] = merge(self._standing(entry.key), entry.change)
            elif isinstance(entry, OffsetsRemoved):
                self._ahead[entry.queue] = None
                self._removing.add(entry.queue)
        self._answers.append((number, then))
        written = self.broker.world.variant.offset_entries(entries)
        master.append(Record(size, "journal", written, JOURNAL_QUEUE, number))
        if is_pushed:
            master.appended()

    def _standing(self, key: GroupQueue) -> Standing | None:
        if key in self._ahead:
            return self._ahead[key]
        return self.broker.derived.journal.standing(key)

    def write_image(self) -> None:
        """The whole state again: retention may then remove what came before."""
        state, broker = self.broker.derived.journal, self.broker
        if not self._is_ready or not self._acts() or not state.is_whole or self._answers:
            return
        entries: list[Entry | ImageEnd] = []
        if state.lease is not None:
            entries.append(LeaseEntry(state.lease, 0))
        for key in list(state.keys()):
            standing = state.standing(key)
            assert standing is not None, "its key was told"
            entries.append(OffsetEntry(key, Change(ChangeKind.IMAGE, *standing), 0))
        if self.offsets is not None:
            entries = list(self.offsets.image())
        number = broker.derived.queue_ends.get(JOURNAL_QUEUE, 0)
        broker.world.note("%s writes an image of the offsets", broker.instance)
        entries.append(ImageEnd(broker.folder.log.end, number, 0))
        self.write(tuple(entries), lambda: None)

    def _write_lease(self, record: RunRecord, then: Callable[[], None]) -> None:
        def confirmed() -> None:
            self.broker.folder.lease_file = record
            then()

        self.write((LeaseEntry(record, 0),), confirmed)

    def record_clean_end(self, then: Callable[[], None]) -> None:
        """Record for the next run who is a member and holds what."""
        leases, record = self._leases, self._record
        if not self._is_ready or self._is_recording:
            return
        record = self.broker.world.variant.planned_end(
            record,
            list(self.coordinator.members.all_members()),
            leases.held(),
            now_s=self.broker.clock_s(),
            unsure_until_s=leases.unsure_until_s,
        )
        for stream in list(self._streams):
            stream.close(self.broker)
        self._streams.clear()
        self._is_ready = False
        self._end_writing()
        if self._is_recorded or not self._was_clean:
            self._write_lease(record, then)
        else:
            self.broker.folder.lease_file = record
            then()

    # ------------------------------------------------------------------------------ members

    def join(self, stream: Stream, joining: Joining) -> None:
        broker = self.broker
        if not self._is_ready or not self._acts():
            stream.close(broker)
            return
        if not self._is_recorded:
            self._joining.append((stream, joining, broker.clock_s()))
            if not self._is_recording:
                self._is_recording = True
                longest_ms = max(round(SESSION_S * 1_000), self._record.session_timeout_max_ms)
                self._record = replace(self._record, session_timeout_max_ms=longest_ms)
                self._write_lease(self._record, self._recorded)
            return
        now_s = broker.clock_s()
        if now_s < self._closed_until_s:
            stream.close(broker)
            return
        member = Member(GROUP, joining.client_id, joining.client_id, (), False, SESSION_S, now_s)
        session = MemberStream(self, stream, member)
        self._streams[stream] = session
        confirmed = self.coordinator.join(member, joining.held, session)
        for lease in confirmed:
            broker.world.checks.offsets.shown(broker, lease)
        stream.send(broker, broker.world.on_joined, joining.sequence, tuple(confirmed))

    def _recorded(self) -> None:
        self._is_recorded, self._is_recording = True, False
        joining, self._joining = self._joining, []
        for stream, one, _ in joining:
            if stream.is_open(self.broker):
                self.join(stream, one)

    def heartbeat(self, stream: Stream, sequence: int) -> None:
        session = self._session(stream)
        if session is None:
            return
        broker, member = self.broker, session.member
        try:
            self.coordinator.membership.heartbeat(member, broker.clock_s(), None)
        except AerobeeError:
            stream.close(broker)
            return
        stream.send(broker, broker.world.on_heartbeat_ack, sequence)

    def acquire(self, stream: Stream, key: GroupQueue) -> None:
        session = self._session(stream)
        if session is not None:
            if key in self._removing:
                stream.close(self.broker)
                return
            try:
                self.coordinator.acquire(session.member, key, self.broker.clock_s())
            except AerobeeError:
                stream.close(self.broker)

    def release(self, stream: Stream, key: GroupQueue, epoch: int) -> None:
        session = self._session(stream)
        if session is not None:
            self._ownership.release(session.member, key, epoch)

    def commit(self, stream: Stream, key: GroupQueue, epoch: int, offset: int) -> None:
        """Not bound to the session: any caller that presents the present lease may commit."""
        broker = self.broker
        if not self._is_ready or not self._acts() or key in self._removing:
            return
        self.coordinator.expire(broker.clock_s())
        refusal = self._ownership.may_commit(key, Claim(Owner.LEASE, epoch))
        is_stale = refusal is not None or is_fenced(self._standing(key), epoch)
        if broker.world.variant.checks_lease and is_stale:
            stream.send(broker, broker.world.on_committed, key, epoch, offset, False)
            return
        broker.world.checks.offsets.commit_taken(broker, key, epoch)
        entry = OffsetEntry(key, Change(ChangeKind.COMMIT, offset, epoch), 0)
        number = broker.derived.queue_ends.get(JOURNAL_QUEUE, 0)

        def done() -> None:
            broker.world.checks.offsets.committed(broker, key, offset, number)
            stream.send(broker, broker.world.on_committed, key, epoch, offset, True)

        if broker.world.variant.answers_confirmed:
            self.write((entry,), done)
        else:
            self.write((entry,), lambda: None)
            stream.send(broker, broker.world.on_committed, key, epoch, offset, True)
            broker.world.checks.offsets.committed(broker, key, offset, number)

    def reset(self, key: GroupQueue, offset: int) -> None:
        """An operator sets an offset."""
        if self._is_ready and self._acts() and key not in self._removing:
            change = Change(ChangeKind.RESET, offset, self._leases.latest_epoch)
            self.write((OffsetEntry(key, change, 0),), lambda: None)

    def delete(self, key: GroupQueue) -> bool:
        """An operator deletes an offset by force: the first call ends members' sessions, and a
        later one, once nobody can believe that it holds the queue, deletes the offset. Returns
        whether it did."""
        if not self._is_ready or not self._acts():
            return False
        now_s = self.broker.clock_s()
        self.coordinator.expire(now_s)
        if self.coordinator.close_group(key.group):
            self._closed_until_s = now_s + 1.5 * SESSION_S
        is_believed = self._leases.believed_until_s(key.group, key.__eq__) is not None
        if is_believed and self.broker.world.variant.waits_for_holders:
            return False
        self.write((OffsetsRemoved(*key, 0),), lambda: None)
        return True

    def stream_ended(self, stream: object) -> None:
        assert isinstance(stream, Stream)
        session = self._streams.pop(stream, None)
        if session is not None:
            self.coordinator.detach(session.member, session)

    def _session(self, stream: Stream) -> MemberStream | None:
        """The session of a member that may be served now."""
        session = self._streams.get(stream)
        if session is not None and not self._acts():
            self.stream_ended(stream)
            stream.close(self.broker)
            return None
        return session


class WrittenOffsets:
    """The journal's writer, as used by the product's `OffsetWriter`."""

    waiting_bytes = 0
    newest = None

    def __init__(self, groups: Groups, waiting: Waiting) -> None:
        self._groups = groups
        self._part = waiting
        self._term: OffsetWriter | None = None
        self._open: list[Entry | ImageEnd] = []
        self._done: asyncio.Future[None] | None = None
        self._confirming: list[tuple[list[Entry | ImageEnd], asyncio.Future[None]]] = []

    def begin(self, state: OffsetJournalState) -> OffsetWriter:
        writer: Any = self
        self._term = OffsetWriter(state, writer, self._part.clock, on_reset=lambda key: None)
        return self._term

    def waiting(self) -> Iterator[Entry | ImageEnd]:
        """What is not in effect yet."""
        for entries, _ in self._confirming:
            yield from entries
        yield from self._open

    def add(self, entry: Entry | ImageEnd, *, is_durable: bool = True) -> asyncio.Future[None]:
        """As `JournalWriter.add`; everything is on disk before anyone is told."""
        if self._groups.offsets is None:
            raise NotMaster("the term is over")
        if self._done is None:
            self._done = self._part.loop.create_future()
            self._done.add_done_callback(lambda done: done.exception())
            self._part.loop.call_soon(self.flush)
        self._open.append(entry)
        return self._done

    def flush(self) -> None:
        """Write the record being filled."""
        if self._done is None:
            return
        entries, done = self._open, self._done
        self._open, self._done = [], None
        groups = self._groups
        master = groups.broker.master
        if master is None or not master.takes:
            self._tell()
            done.set_exception(NotMaster("this replica takes nothing now"))
            return
        self._confirming.append((entries, done))
        groups.write(tuple(entries), self._counted, is_pushed=False)
        self._part.push()

    def _counted(self) -> None:
        if not self._confirming:
            return  # `end` has reported it
        entries, done = self._confirming.pop(0)
        assert self._term is not None
        self._term.counted(entries)
        self._part.when_flushed(
            self._groups.broker.confirmed_end, lambda reached: self._finish(done)
        )

    def _finish(self, done: asyncio.Future[None]) -> None:
        if not done.done():
            done.set_result(None)

    def _tell(self) -> None:
        assert self._term is not None
        self._term.dropped(list(self.waiting()))

    def end(self) -> None:
        """The term is over."""
        dones = [done for _, done in self._confirming]
        dones += [] if self._done is None else [self._done]
        self._confirming, self._open, self._done = [], [], None
        self._tell()
        for done in dones:
            done.set_exception(NotMaster("the term is over"))


def queue_key(queue_id: int) -> GroupQueue:
    return GroupQueue(GROUP, TOPIC, queue_id)
