"""This replica's role, as the rest of the broker sees it: master under an epoch, or slave.

Owns: the mastership, the log's epoch history, how far the log is known to be confirmed, and where
the other replicas are. On the loop; nothing here waits. `RoleManager` does what takes time: it
promotes, follows and steps down.

Invariant: an action as master checks `may_act` or `check_may_act` at the moment of acting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from aerobee.broker.replication.config import ReplicationConfig, ReplicationMode
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import LogState
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName
from aerobee.broker.replication.mastership import Mastership
from aerobee.broker.replication.replica_set import NO_MASTER, ReplicaPlace, ReplicaSetView
from aerobee.domain.broker_condition import BrokerCondition
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import DuplicateBroker, NotMaster, ReplicaBehind, StaleEpoch
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


class ReplicatedLog(Protocol):
    """What roles need to know of the store."""

    @property
    def min_offset(self) -> int: ...

    @property
    def appended_end(self) -> int: ...


class Roles:
    def __init__(
        self,
        mastership: Mastership,
        history: EpochHistory,
        store: ReplicatedLog,
        clock: Clock,
        config: ReplicationConfig,
        *,
        segment_bytes: int,
    ) -> None:
        self.mastership = mastership
        self.history = history
        self.config = config
        self.endpoints: dict[int, ReplicaPlace] = {}
        self.is_pausing = False
        """A hand-over is under way: no messages are taken."""
        self.known_replicas: frozenset[int] = frozenset()
        """The replica set's replicas as durably recorded in the folder."""
        self._advanced: list[Callable[[], None]] = []
        self._changed: list[Callable[[], None]] = []
        self._doubted: list[Callable[[], None]] = []
        self._had_master = False
        """Whether the nameserver last reported a live master of the replica set."""
        self._instances: dict[int, str] = {}
        """The process of each replica last reported as registered."""
        self._were_registered: set[int] = set()
        """Replicas reported as registered at any time in this run."""
        self._store = store
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._known_confirmed_end = 0
        self._doubted_epoch = 0
        self._opened_end = 0 if mastership.is_alone else store.appended_end

    # ------------------------------------------------------------------------------ listeners

    def on_advanced(self, told: Callable[[], None]) -> None:
        """`told` is called when more may have become confirmed."""
        self._advanced.append(told)

    def on_changed(self, told: Callable[[], None]) -> None:
        """`told` is called when something may be due: a change of role or of the in-sync set."""
        self._changed.append(told)

    def on_doubt(self, told: Callable[[], None]) -> None:
        """`told` is called when a heartbeat should be sent at once."""
        self._doubted.append(told)

    # ------------------------------------------------------------------------------ what is

    @property
    def own(self) -> ReplicaName:
        return self.mastership.own

    @property
    def replica_set(self) -> ReplicaSetView | None:
        """The newest record received; None before the first."""
        return self.mastership.replica_set

    @property
    def term(self) -> MasterTerm | None:
        """None on a slave. Having a term does not mean that it may act: see `may_act`."""
        return self.mastership.term

    @property
    def epoch(self) -> int:
        """The newest epoch known to this replica."""
        known = self.history.latest_epoch
        if self.term is not None:
            known = max(known, self.term.epoch)
        return known if self.replica_set is None else max(known, self.replica_set.epoch)

    @property
    def own_epoch(self) -> int:
        """The epoch that this master acts under; on a slave, its history's newest."""
        return self.history.latest_epoch if self.term is None else self.term.epoch

    @property
    def is_alone(self) -> bool:
        return self.mastership.is_alone

    @property
    def is_sync(self) -> bool:
        """Whether an acknowledgement waits for the in-sync set."""
        return self.config.mode is ReplicationMode.SYNC

    @property
    def confirmed_end(self) -> int:
        """Everything below is in the log of each replica that could be elected, as far as known."""
        term = self.term
        return self._known_confirmed_end if term is None else term.confirmed_end

    def log_epoch(self) -> int:
        """The newest epoch that has bytes in this log, or could have."""
        return self.history.up_to(self._store.appended_end).latest_epoch

    def log_state(self) -> LogState:
        return LogState(
            begin=self._store.min_offset,
            end=self._store.appended_end,
            epochs=self.history,
            segment_bytes=self._segment_bytes,
            confirmed_end=self.confirmed_end,
        )

    def master_address(self) -> str | None:
        """The address of the replica set's master, if it is another replica and known."""
        replica_set = self.replica_set
        if replica_set is None or replica_set.master_id in (NO_MASTER, self.own.broker_id):
            return None
        endpoint = self.endpoints.get(replica_set.master_id)
        return None if endpoint is None else endpoint.address

    # ------------------------------------------------------------------------------ may we

    def may_act(self) -> bool:
        """Whether this replica may take, confirm and acknowledge messages now."""
        return self.mastership.may_act(self._clock.monotonic_s())

    def check_may_act(self) -> None:
        """Raises NotMaster."""
        if not self.may_act():
            raise NotMaster(self._why_not())

    def check_enough(self) -> None:
        """Raises NotMaster during a hand-over, NotEnoughReplicas while too few are in sync."""
        if self.is_pausing:
            raise NotMaster(
                f"this replica of the broker group is handing over to another one; {_ASK_ROUTE}"
            )
        if self.term is not None:
            self.term.check_enough()

    def check_reads(self) -> None:
        """Raises ReplicaBehind while it is unknown whether the log's content at the start is
        confirmed: consumers must not see what may be cut."""
        if not self.is_alone and self.confirmed_end < self._opened_end:
            raise ReplicaBehind(
                f"this replica knows that its log is confirmed up to {self.confirmed_end} of "
                f"{self._opened_end} so far; read from another replica, or try again soon"
            )

    def is_registered(self, name: ReplicaName, instance: str) -> bool:
        """Whether this process is the registered one of its replica, as far as known. One that has
        lost its registration since then still counts."""
        return (
            name.broker_id in self.known_replicas
            and self._instances.get(name.broker_id) == instance
        )

    def check_joining(self, name: ReplicaName, instance: str, epoch: int) -> None:
        """Check that this process of a replica may copy our log under `epoch`.

        Raises NotMaster, StaleEpoch; DuplicateBroker: another process is registered.
        """
        self.check_may_act()
        term = self.term
        assert term is not None, "who acts has a term"
        # What an unknown replica says about epochs must not stop this master.
        if name.broker_id not in self.known_replicas or name.broker_id == self.own.broker_id:
            raise NotMaster(
                f"replica {name.broker_id} is not (yet) one of the broker group's other replicas "
                f"{sorted(self.known_replicas - {self.own.broker_id})}; it must register first"
            )
        if not self.is_registered(name, instance):
            raise DuplicateBroker(
                f"the process {instance!r} is not the one that is registered as replica "
                f"{name.broker_id}: it must register before it copies the log, and what it "
                "reports is ignored until then"
            )
        if epoch > term.epoch:
            self.heard_epoch(epoch)
            raise StaleEpoch(f"this master acts under epoch {term.epoch}, not yet {epoch}")
        if epoch < term.epoch:
            raise StaleEpoch(f"epoch {epoch} is over, this master acts under {term.epoch}")

    def _why_not(self) -> str:
        if self.term is None:
            return (
                f"this replica of the broker group is a slave and takes no messages; {_ASK_ROUTE}"
            )
        if self.mastership.resigned_epoch is not None:
            return f"this replica has handed its broker group over; {_ASK_ROUTE}"
        return (
            "this replica was master, but its lease is not renewed: another one may be master "
            f"by now; {_ASK_ROUTE}"
        )

    # ------------------------------------------------------------------------------ replicas

    def replica_joined(self, name: ReplicaName, end: int) -> None:
        """A replica's stream has begun; its log equals ours up to `end`."""
        if self.term is not None:
            now_s = self._clock.monotonic_s()
            if self.term.has_lost(name, end):
                log_event(
                    log,
                    "a replica in sync lacks confirmed messages: its disk or folder was "
                    "damaged; it is out of the in-sync set until it has them again",
                    level=logging.ERROR,
                    replica=name.broker_id,
                    log_end=end,
                    confirmed_end=self.term.confirmed_end,
                )
            self.term.joined(name, end, self._store.appended_end, now_s)
            _tell(self._advanced)
            _tell(self._changed)

    def replica_acknowledged(self, name: ReplicaName, end: int) -> None:
        """The replica has stored everything below `end`."""
        if self.term is not None:
            now_s = self._clock.monotonic_s()
            self.term.acknowledged(name, end, self._store.appended_end, now_s)
            _tell(self._advanced)
            if name not in self.term.in_sync:
                _tell(self._changed)

    def replica_left(self, name: ReplicaName) -> None:
        """The replica's stream has ended."""
        if self.term is not None:
            self.term.left(name)
            _tell(self._advanced)
            _tell(self._changed)

    def replica_given_up(self) -> None:
        """The confirmed end no longer waits for a replica that might have joined the set."""
        _tell(self._advanced)

    def heard_epoch(self, epoch: int) -> None:
        """Another replica knows `epoch`. If it is newer than ours, stop acting until the registry
        confirms again that we are master. Once it has, that epoch does not belong to this set and
        is not asked about again."""
        term = self.term
        if term is None or self.is_alone:
            return
        if epoch > max(term.epoch, self._doubted_epoch):
            self._doubted_epoch = epoch
            log_event(
                log,
                "heard of a newer epoch; asking the nameserver",
                level=logging.WARNING,
                epoch=epoch,
                own_epoch=term.epoch,
            )
            self.mastership.doubt()
            _tell(self._doubted)

    # ------------------------------------------------------------------------------ news

    def hear_replica_set(self, replica_set: ReplicaSetView) -> None:
        """The replica set's record, from a directive or as the answer to a change of it."""
        if self.mastership.hear(replica_set):
            _tell(self._advanced)
            _tell(self._changed)

    def ask(self) -> None:
        """A heartbeat is due now: the nameserver should be told at once."""
        _tell(self._doubted)

    def heartbeat_sent(self, sequence: int) -> None:
        """A heartbeat is about to be sent to the nameserver."""
        self.mastership.heartbeat_sent(sequence, self._clock.monotonic_s())

    def renewed(self, sequence: int, lease_ms: int) -> None:
        """etcd has confirmed the registration that this heartbeat renewed; 0: none."""
        self.mastership.renewed(sequence, lease_ms)
        _tell(self._advanced)

    def hear_endpoints(self, endpoints: Iterable[ReplicaPlace]) -> None:
        """The addresses of the replica set's live replicas."""
        self.endpoints = {endpoint.broker_id: endpoint for endpoint in endpoints}
        self._were_registered.update(self.endpoints)
        self._instances.update(
            (broker_id, endpoint.instance) for broker_id, endpoint in self.endpoints.items()
        )
        self._note_departed()
        self._note_orphaned()
        _tell(self._changed)

    def _note_orphaned(self) -> None:
        """An election is due, and depends on how far the logs reach: report ours without waiting
        for the next heartbeat."""
        has_master = any(endpoint.is_master for endpoint in self.endpoints.values())
        if self._had_master and not has_master and self.term is None:
            _tell(self._doubted)
        self._had_master = has_master

    def _note_departed(self) -> None:
        # A list that lacks this replica says nothing about the others either.
        if self.term is not None and self.own.broker_id in self.endpoints:
            here = {
                broker_id
                for broker_id, endpoint in self.endpoints.items()
                if endpoint.condition is not BrokerCondition.DISK_HUNG
            }
            self.term.departed(self.known_replicas - here, were_registered=self._were_registered)

    def note_replicas(self, replicas: frozenset[int]) -> None:
        """The folder has durably recorded these replicas of the set."""
        if replicas != self.known_replicas:
            self.known_replicas = replicas
            _tell(self._changed)

    def note_confirmed(self, end: int) -> None:
        """The master says that everything below `end` is confirmed."""
        self._known_confirmed_end = max(
            self._known_confirmed_end, min(end, self._store.appended_end)
        )

    def is_dispensable(self, min_insync_replicas: int) -> bool:
        """Whether another replica is master and could do without this one briefly: enough others
        are in sync for messages to be taken, and to be on more than one disk."""
        replica_set = self.replica_set
        if replica_set is None or replica_set.master_id in (NO_MASTER, self.own.broker_id):
            return False
        others = {name for name in replica_set.in_sync if name.broker_id != self.own.broker_id}
        return len(others) >= max(2, min_insync_replicas)

    # ------------------------------------------------------------------------------ terms

    def begin_term(self, term: MasterTerm) -> None:
        """The epoch is in the log's history, durably: act under it from now on."""
        self.mastership.lead(term)
        self._note_departed()

    def end_term(self) -> None:
        """Stop acting as master."""
        if self.term is not None:
            self.note_confirmed(self.term.confirmed_end)
        self.mastership.end_term()


def _tell(listeners: list[Callable[[], None]]) -> None:
    for told in listeners:
        told()


_ASK_ROUTE = "ask the route again for the master"
