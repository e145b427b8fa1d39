"""PURE: one master's view of its replicas under one epoch.

Owns: the in-sync set, what each replica has acknowledged under this epoch, and the confirmed end
that follows: everything below it is in the log of every replica that could be elected.

Invariant: the confirmed end never falls; it takes into account every replica of the set that etcd
may hold now, that is of the last known set and of a change under way; a replica's bytes count only
from its present stream, under the name (incarnation) in the set.

A replica may join the set once it has everything that is confirmed. Under load that end runs ahead
of each acknowledgement, so it waits briefly for a replica that is close behind (decision 0033).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from aerobee.runtime.errors import NotEnoughReplicas


class ReplicaName(NamedTuple):
    """A replica, for as long as its log has lost nothing."""

    broker_id: int
    incarnation: str


InSyncSet = frozenset[ReplicaName]


@dataclass(frozen=True, slots=True, kw_only=True)
class TermPolicy:
    min_insync_replicas: int = 1
    """Sends are refused while the set is smaller."""
    in_sync_lag_s: float = 2.0
    """A replica leaves the set when it has not had everything for this long."""
    proposal_pause_s: float = 0.5
    """The pause after a refused or lost change before the next."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of the in-sync set to make by compare-and-swap."""

    in_sync: InSyncSet
    expected_revision: int


@dataclass(slots=True)
class Progress:
    """One connected replica."""

    name: ReplicaName
    acknowledged_end: int
    caught_up_s: float
    """When it was last known to have everything."""
    sample_end: int
    sample_s: float
    """The log ended at `sample_end` at this time; an acknowledgement of that moves `caught_up_s`
    here."""
    has_history: bool = False
    """It has acknowledged something under this epoch, so it has stored the master's history: if it
    is elected, every other log has an epoch in common with its own."""


class MasterTerm:
    """Positions are log offsets, times monotonic seconds."""

    def __init__(
        self,
        *,
        epoch: int,
        own: ReplicaName,
        in_sync: Iterable[ReplicaName],
        revision: int,
        log_end: int,
        confirmed_end: int,
        policy: TermPolicy,
        now_s: float,
        is_unclean: bool = False,
    ) -> None:
        """`log_end` is where the epoch begins; `confirmed_end` is what was known to be confirmed.
        `is_unclean`: it began without an in-sync replica."""
        self.epoch = epoch
        self.began_s = now_s
        self.is_unclean = is_unclean
        self.own = own
        self.start = log_end
        self.revision = revision
        self.policy = policy
        self.confirmed_end = confirmed_end
        self._in_sync: InSyncSet = frozenset(in_sync)
        self._proposed: InSyncSet | None = None
        self._is_outcome_unknown = False
        self._progress: dict[int, Progress] = {}
        self._heard_s: dict[ReplicaName, float] = dict.fromkeys(self._in_sync, now_s)
        self._next_proposal_s = now_s
        self._awaited: InSyncSet = frozenset()
        self._await_until_s = float("inf")
        self._next_await_s = now_s
        self._absent: frozenset[int] = frozenset()
        self._were_here: set[int] = set()
        assert own in self._in_sync, "a master is in sync with itself"

    def __repr__(self) -> str:
        return (
            f"MasterTerm(epoch={self.epoch}, confirmed_end={self.confirmed_end}, "
            f"in_sync={sorted(self._in_sync)})"
        )

    @property
    def in_sync(self) -> InSyncSet:
        """As last known to be in etcd."""
        return self._in_sync

    @property
    def counted(self) -> InSyncSet:
        """Every replica that may be in etcd's set now."""
        return self._in_sync if self._proposed is None else self._in_sync | self._proposed

    @property
    def is_proposing(self) -> bool:
        return self._proposed is not None

    @property
    def awaited(self) -> InSyncSet:
        """Replicas outside the set for which the confirmed end waits, so that they can join it."""
        return self._awaited

    def progress(self) -> list[Progress]:
        """Connected replicas, by broker id."""
        return [self._progress[broker_id] for broker_id in sorted(self._progress)]

    # ------------------------------------------------------------------------------ replicas

    def joined(self, name: ReplicaName, end: int, log_end: int, now_s: float) -> None:
        """A replica's log equals the beginning of ours, up to `end`."""
        assert name.broker_id != self.own.broker_id
        self._were_here.add(name.broker_id)
        caught_up_s = now_s if end >= log_end else self._heard_s.get(name, float("-inf"))
        if self.has_lost(name, end):
            # It leaves the set at once, and returns when it has everything again.
            caught_up_s = float("-inf")
        self._progress[name.broker_id] = Progress(name, end, caught_up_s, log_end, now_s)

    def acknowledged(self, name: ReplicaName, end: int, log_end: int, now_s: float) -> None:
        """A replica has stored everything below `end`; ignored for one that has not joined."""
        progress = self._progress.get(name.broker_id)
        if progress is None or progress.name != name or end < progress.acknowledged_end:
            return
        progress.acknowledged_end = end
        progress.has_history = True
        if end >= progress.sample_end:
            progress.caught_up_s = max(progress.caught_up_s, progress.sample_s)
            progress.sample_end, progress.sample_s = log_end, now_s
        if end >= log_end:
            progress.caught_up_s = now_s

    def has_lost(self, name: ReplicaName, end: int) -> bool:
        """Whether a replica of the set with a log up to `end` lacks what it once had, without
        knowing it: otherwise it would have taken another name."""
        return name in self.counted and end < self.confirmed_end

    def left(self, name: ReplicaName) -> None:
        """Its stream ended."""
        progress = self._progress.get(name.broker_id)
        if progress is not None and progress.name == name:
            self._heard_s[name] = progress.caught_up_s
            self._await(self._awaited - {name}, self._await_until_s)
            del self._progress[name.broker_id]

    def departed(self, absent: Iterable[int], *, were_registered: Iterable[int] = ()) -> None:
        """`absent` replicas are not registered at present. Those that were here before, through a
        stream of this term or a known registration, have left: they announced a stop, or were
        silent for a whole lease. Without a stream they leave the set at once: nothing should wait
        for a replica that was stopped on purpose. One that has not been here yet may be starting,
        as all are after a power failure, and gets the ordinary time."""
        self._absent = frozenset(absent)
        self._were_here.update(were_registered)

    # ------------------------------------------------------------------------------ confirmed

    def confirm(self, own_end: int) -> int:
        """The confirmed end, given that our own log is safe up to `own_end`."""
        end = own_end
        for name in self.counted | self._awaited:
            if name != self.own:
                progress = self._progress.get(name.broker_id)
                known = progress is not None and progress.name == name
                end = min(end, progress.acknowledged_end if progress and known else 0)
        self.confirmed_end = max(self.confirmed_end, end)
        return self.confirmed_end

    def check_enough(self) -> None:
        """Raises NotEnoughReplicas while a send could not be replicated as often as required."""
        if len(self._in_sync) < self.policy.min_insync_replicas:
            count = len(self._in_sync)
            raise NotEnoughReplicas(
                f"{count} {'replica is' if count == 1 else 'replicas are'} in sync, "
                "min_insync_replicas is "
                f"{self.policy.min_insync_replicas}: start the missing replicas, or send to "
                "another broker group"
            )

    # ------------------------------------------------------------------------------ the set

    def propose(self, log_end: int, now_s: float) -> Proposal | None:
        """The change to request now, if one is due. It counts from now on until `in_sync_changed`
        or `proposal_refused` reports its outcome."""
        if self._proposed is not None or now_s < self._next_proposal_s:
            return None
        wanted = self._wanted(now_s)
        if wanted != self._in_sync:
            self._await(frozenset(), now_s)
            self._proposed = wanted
            return Proposal(wanted, self.revision)
        limit_s = self.policy.in_sync_lag_s / 2
        if now_s >= self._await_until_s:
            self._next_await_s = now_s + max(limit_s, self.policy.proposal_pause_s)
        self._await(self._close_behind(limit_s, now_s), now_s + limit_s)
        return None

    def _close_behind(self, limit_s: float, now_s: float) -> InSyncSet:
        """Replicas outside the set that will soon have everything; none while it is too early."""
        if now_s < self._next_await_s:
            return frozenset()
        return frozenset(
            progress.name
            for progress in self._progress.values()
            if progress.has_history
            and now_s - progress.caught_up_s <= limit_s
            and progress.name not in self._in_sync
        )

    def _await(self, names: InSyncSet, until_s: float) -> None:
        """While a replica is awaited, the confirmed end stays where it is."""
        if not names:
            self._await_until_s = float("inf")
        elif not self._awaited:
            self._await_until_s = until_s
        self._awaited = names

    def next_look_s(self, now_s: float) -> float:
        """When the answer of `propose` may change even if nothing is heard until then: a refused
        change may be retried, a replica of the set has not caught up for too long, or another was
        awaited for too long. In the past while one has not caught up; infinity: never."""
        if now_s < self._next_proposal_s:
            return self._next_proposal_s
        others = [self.caught_up_s(name) for name in self._in_sync if name != self.own]
        recent_until_s = min(others, default=float("inf")) + self.policy.in_sync_lag_s
        return min(recent_until_s, self._await_until_s)

    def in_sync_changed(self, in_sync: Iterable[ReplicaName], revision: int) -> None:
        """etcd's set as of `revision`, from the answer to a proposal or from news; older news
        change nothing."""
        if revision <= self.revision:
            return
        self.revision = revision
        self._in_sync = frozenset(in_sync)
        self._proposed = None
        self._is_outcome_unknown = False

    def proposal_refused(self, now_s: float) -> None:
        """This attempt was refused. If it was not the first, an earlier one may have been made, and
        both sets still count until a newer record arrives."""
        if not self._is_outcome_unknown:
            self._proposed = None
        self._next_proposal_s = now_s + self.policy.proposal_pause_s

    def proposal_again(self) -> Proposal | None:
        """What to request again while the outcome of a proposal is unknown: the same."""
        if self._proposed is None:
            return None
        self._is_outcome_unknown = True
        return Proposal(self._proposed, self.revision)

    def caught_up_s(self, name: ReplicaName) -> float:
        """When the replica last had everything; minus infinity if never under this epoch."""
        progress = self._progress.get(name.broker_id)
        if progress is not None and progress.name == name:
            return progress.caught_up_s
        return self._heard_s.get(name, float("-inf"))

    def _has_departed(self, broker_id: int) -> bool:
        has_left = broker_id in self._absent and broker_id in self._were_here
        return has_left and broker_id not in self._progress

    def _wanted(self, now_s: float) -> InSyncSet:
        wanted = {self.own}
        for name in self._in_sync:
            is_recent = now_s - self.caught_up_s(name) <= self.policy.in_sync_lag_s
            if is_recent and not self._has_departed(name.broker_id):
                wanted.add(name)
        for progress in self._progress.values():
            has_confirmed = progress.acknowledged_end >= max(self.confirmed_end, self.start)
            is_recent = now_s - progress.caught_up_s <= self.policy.in_sync_lag_s
            if has_confirmed and is_recent and progress.has_history:
                wanted.add(progress.name)
        names: dict[int, ReplicaName] = {}
        for name in wanted:
            # A replica that came back under a new name replaces the old one.
            progress_now = self._progress.get(name.broker_id)
            if name == self.own or progress_now is None or progress_now.name == name:
                names[name.broker_id] = name
        return frozenset(names.values())
