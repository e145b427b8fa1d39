"""PURE: what the set's record means for a replica: lead, follow, step down or wait; and whether it
may act as master now.

Owns: the newest known record, the lease, and the term. It does nothing itself: `decide` says what
is due, the caller does it and reports back with `lead` and `end_term`.

Invariant: a master acts only under the epoch that the record gave to this very instance, and only
while its lease is valid, or while the record has no other replica, so that no other can be elected.
Once it has resigned an epoch it never acts under it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.broker.replication.master_lease import LeaseMargin, MasterLease
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName
from aerobee.broker.replication.replica_set import NO_MASTER, ReplicaSetView


@dataclass(frozen=True, slots=True)
class Lead:
    """Become master under `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Copy the log of this master under its epoch."""

    master_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StepDown:
    """Another replica is master under `epoch`: end the term and restart as a slave."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Stay:
    """No change: continue as master, or wait for an election."""


Decision = Lead | Follow | StepDown | Stay


class Mastership:
    """Times are seconds of a clock that continues while the machine sleeps."""

    def __init__(
        self,
        own: ReplicaName,
        instance: str,
        *,
        is_alone: bool,
        margin: LeaseMargin | None = None,
    ) -> None:
        """`is_alone`: the last record known to this folder has no other replica."""
        self.own = own
        self.instance = instance
        self.is_alone = is_alone
        self.replica_set: ReplicaSetView | None = None
        self.term: MasterTerm | None = None
        self.lease = MasterLease(margin)
        self.resigned_epoch: int | None = None
        self._sent_sequence = 0
        self._doubted_sequence = 0
        self._is_outdated = False

    def __repr__(self) -> str:
        return f"Mastership({self.own}, {self.term}, alone={self.is_alone})"

    # ------------------------------------------------------------------------------ facts

    def hear(self, replica_set: ReplicaSetView) -> bool:
        """Take in the replica set's record; False if it is older than what is known.

        For one directive, call this before `renewed`, so that a lease never outlives the news of
        another master.
        """
        known = self.replica_set
        # Epochs rise with revisions, unless etcd was restored; then the higher epoch is the newer.
        # And while this replica is alone no other can be master, except in another etcd.
        is_other = replica_set.master_id not in (NO_MASTER, self.own.broker_id)
        self._is_outdated = (
            known is not None
            and replica_set.revision < known.revision
            and replica_set.epoch <= known.epoch
            and not (self.is_alone and is_other)
        )
        if self._is_outdated:
            return False
        self.replica_set = replica_set
        if replica_set.replicas - {self.own.broker_id}:
            self.is_alone = False
        elif self._is_named(replica_set):
            self.is_alone = True
        if (
            self.term is not None
            and self._is_named(replica_set)
            and replica_set.epoch == self.term.epoch
        ):
            self.term.in_sync_changed(replica_set.in_sync, replica_set.revision)
        return True

    def heartbeat_sent(self, sequence: int, now_s: float) -> None:
        """A heartbeat is about to be sent."""
        self._sent_sequence = sequence
        self.lease.sent(sequence, now_s)

    def renewed(self, sequence: int, lease_ms: int) -> None:
        """etcd has confirmed the registration that this heartbeat renewed. That counts only
        together with the current record: an older one does not say who is master now."""
        if not self._is_outdated and sequence > self._doubted_sequence:
            self.lease.renewed(sequence, lease_ms)

    def doubt(self) -> None:
        """Another replica knows a newer epoch: the lease counts again once a heartbeat sent from
        now on is confirmed and the accompanying record still names this instance."""
        self._doubted_sequence = self._sent_sequence
        self.lease.end_s = float("-inf")

    # ------------------------------------------------------------------------------ acting

    def may_act(self, now_s: float) -> bool:
        """Whether messages may be taken, confirmed and acknowledged now."""
        term = self.term
        if term is None or self.has_resigned(term.epoch):
            return False
        if self.is_alone:
            return True
        replica_set = self.replica_set
        return (
            replica_set is not None
            and replica_set.epoch == term.epoch
            and self._is_named(replica_set)
            and self.lease.is_valid(now_s)
        )

    def decide(self) -> Decision:
        """What is due; unchanged until something is heard or done."""
        replica_set, term = self.replica_set, self.term
        if replica_set is None:
            return Stay()
        if replica_set.master_id == self.own.broker_id:
            # Our predecessor, or a duplicate that the registry must refuse: wait for an election.
            is_new = term is None or replica_set.epoch > term.epoch
            if term is not None and replica_set.epoch < term.epoch:
                # From a record other than the term's, as after a restore of etcd: do not take it
                # up.
                is_new = not self.is_alone
            if self._is_named(replica_set) and is_new and not self.has_resigned(replica_set.epoch):
                return Lead(replica_set.epoch)
            return Stay()
        if replica_set.master_id == NO_MASTER:
            return Stay()
        if term is None:
            return Follow(replica_set.master_id, replica_set.epoch)
        # Also under a lower epoch: then this term does not belong to the record, because within one
        # record epochs rise. A replica that was alone and finds others in a new etcd follows.
        return Stay() if self.is_alone else StepDown(replica_set.epoch)

    def lead(self, term: MasterTerm) -> None:
        """The term has begun; its epoch is in the log's history."""
        assert self.term is None or self.term.epoch < term.epoch, "epochs rise"
        assert not self.has_resigned(term.epoch), "what was resigned is not taken up again"
        self.term = term
        replica_set = self.replica_set
        if (
            replica_set is not None
            and self._is_named(replica_set)
            and replica_set.epoch == term.epoch
        ):
            term.in_sync_changed(replica_set.in_sync, replica_set.revision)

    def resign(self) -> None:
        """Never act again under the present epoch."""
        assert self.term is not None, "only a master resigns"
        self.resigned_epoch = self.term.epoch

    def decline(self, epoch: int) -> None:
        """Never act under this epoch, which was given to this instance, or an earlier one: another
        election is due."""
        assert self.term is None or self.term.epoch != epoch, "it was not taken up"
        self.resigned_epoch = max(epoch, self.resigned_epoch or 0)

    def end_term(self) -> None:
        """The term is over; no new one begins before `lead`."""
        self.term = None

    def _is_named(self, replica_set: ReplicaSetView) -> bool:
        return (replica_set.master_id, replica_set.master_instance) == (
            self.own.broker_id,
            self.instance,
        )

    def has_resigned(self, epoch: int) -> bool:
        """Whether this instance must never act under that epoch."""
        return self.resigned_epoch is not None and epoch <= self.resigned_epoch
