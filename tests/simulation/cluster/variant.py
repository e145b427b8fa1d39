"""The decisions as the product makes them; a mutant makes one of them differently."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from aerobee.broker.groups.members import Member
from aerobee.broker.groups.queue_leases import Lease
from aerobee.broker.groups.run_record import RunRecord, planned_end
from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.offsets.entries import Entry
from aerobee.broker.pop.term import PopTerm
from aerobee.broker.replication.joining import LogState, Start, where_to_start
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName
from aerobee.broker.replication.mastership import Mastership
from aerobee.nameserver.election import Election, LiveReplicas, elect
from aerobee.nameserver.stored import ReplicaSet
from aerobee.store.engine.producers.producer_windows import ProducerName, ProducerWindows
from aerobee.store.engine.producers.window import AlreadyStored


class Variant:
    """The correct variant."""

    renews_incarnation = True
    """A log that may have lost bytes gets a new name."""
    uses_epoch_first = False
    """An epoch is used before it is durable."""
    reads_unconfirmed = False
    """Consumers see what is appended."""
    counts_hello = False
    """What a hello names counts before the logs are compared."""
    acknowledges_alone = False
    """What only the master has is acknowledged."""
    checks_lease = True
    """A commit is valid only under the queue's present lease."""
    waits_for_grace = True
    """After an unclean end of a term, queues go to no new member for a session's length."""
    waits_for_journal = True
    """A master's groups begin once everything in its log is confirmed and applied."""
    waits_for_holders = True
    """An offset is deleted once nobody can believe that it holds its queue."""
    answers_confirmed = True
    """A commit is acknowledged once it is confirmed."""
    syncs_before_hello = True
    """With synchronous flush a hello names only what is on disk."""

    hears_ends = True
    """Nameservers learn log ends from heartbeats, not only from registrations."""

    saves_before_the_log = False
    """The snapshot of the offsets may say more than the log on disk does."""

    refuses_copies = True
    """A log that lacks what its incarnation is known to have had is not registered."""

    knows_before_it_takes = True
    """A new master takes no half message before it knows which ones its log has."""
    writes_ends = True
    """That a transaction has ended gets into the log."""
    waits_for_ends = True
    """An end is answered once it is safe."""
    finishes_commits = True
    """A new master finishes the commit that the last one began."""
    knows_what_it_finished = True
    """Nothing ends that transaction again before its end is followed."""
    checks_open_ones_only = True
    """What was ended while a check read its half message is not checked."""
    keeps_what_is_set_aside = True
    """A message that is set aside is stored where an operator finds it."""

    def term(self, **arguments: Any) -> MasterTerm:
        return MasterTerm(**arguments)

    def mastership(self, own: ReplicaName, instance: str, *, is_alone: bool) -> Mastership:
        return Mastership(own, instance, is_alone=is_alone)

    def elect(
        self, group: ReplicaSet, live: LiveReplicas, *, allow_unclean: bool, confirmed_end: int
    ) -> Election | None:
        return elect(group, live, allow_unclean=allow_unclean, confirmed_end=confirmed_end)

    def where_to_start(
        self, slave: LogState, master: LogState, *, unclean_epochs: Collection[int]
    ) -> Start:
        return where_to_start(slave, master, unclean_epochs=unclean_epochs)

    def standing(
        self, windows: ProducerWindows, name: ProducerName, sequence: int
    ) -> AlreadyStored | None:
        return windows.standing(name, sequence, 1)

    def copy_standing(
        self, windows: ProducerWindows, name: ProducerName, sequence: int
    ) -> AlreadyStored | None:
        """Whether the broker's own copy of a message is stored."""
        return windows.standing(name, sequence, 1)

    def appends_copy(self, topic: str) -> bool:
        """A copy that the journal announced is appended."""
        return True

    def timer_record(self, body: bytes) -> bytes:
        """A record of the timer journal gets into the log."""
        return body

    def pop_term(self, *arguments: Any, **named: Any) -> PopTerm:
        return PopTerm(*arguments, **named)

    def offset_entries(self, entries: tuple[Entry | ImageEnd, ...]) -> tuple[Entry | ImageEnd, ...]:
        """Entries about offsets get into the log."""
        return entries

    def planned_end(
        self,
        record: RunRecord,
        members: Sequence[Member],
        leases: Sequence[Lease],
        *,
        now_s: float,
        unsure_until_s: float | None,
    ) -> RunRecord:
        return planned_end(record, members, leases, now_s=now_s, unsure_until_s=unsure_until_s)
