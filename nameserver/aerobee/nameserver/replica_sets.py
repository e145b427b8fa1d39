"""The records of the replica sets in etcd: reading them, elections, changes by masters and
operators.

Owns: every change to a set's record except its creation, which comes with the first registration
(registry.py). Each is one transaction that expects exactly the record and the registrations on
which the decision was based, so any number of nameservers may try at once. election.py says what is
allowed.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from aerobee.nameserver import election
from aerobee.nameserver.compare_and_swap import Keep, Write, changed
from aerobee.nameserver.election import Election, LiveReplicas
from aerobee.nameserver.key_value_store import KeyValueStore
from aerobee.nameserver.key_values import Delete, KeyValue, Put
from aerobee.nameserver.log_reach import LogPositions
from aerobee.nameserver.stored import (
    BrokerKey,
    BrokerRecord,
    DurableKey,
    DurableLogs,
    InSyncReplica,
    Keys,
    ReplicaSet,
    SetState,
    Stored,
    Unreadable,
    encode_replica_set,
)
from aerobee.runtime.errors import (
    GroupNotFound,
    InvalidArgument,
    RegistryUnavailable,
    StaleEpoch,
)
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaSetView:
    """A replica set and its registrations as of one etcd revision."""

    replica_set: ReplicaSet | None
    """None: there is no record yet."""
    entries: Mapping[BrokerKey, KeyValue]
    """The values of the brokers' keys, readable or not."""
    live: LiveReplicas
    durable: Mapping[int, DurableLogs] = field(default_factory=dict)
    """By broker id, as far as anything is known."""


class ReplicaSets:
    """The replica sets of one cluster."""

    def __init__(
        self, etcd: KeyValueStore, keys: Keys, positions: LogPositions, *, allow_unclean: bool
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._positions = positions
        self._allow_unclean = allow_unclean

    async def view(self, broker_name: str) -> ReplicaSetView:
        """The replica set as etcd has it now.

        Raises:
            RegistryUnavailable: etcd is away, or the replica set's record makes no sense.
        """
        replica_set_entry, others = await self._etcd.get_with_prefixes(
            self._keys.replica_set(broker_name),
            self._keys.brokers_of(broker_name),
            self._keys.durable_of(broker_name),
        )
        entries: dict[BrokerKey, KeyValue] = {}
        live: dict[int, BrokerRecord] = {}
        durable: dict[int, DurableLogs] = {}
        for entry in others:
            match self._keys.parse(entry.key), self._readable(entry):
                case BrokerKey() as key, record:
                    entries[key] = entry
                    if isinstance(record, BrokerRecord):
                        live[key.broker_id] = record
                case DurableKey() as key, logs:
                    if not isinstance(logs, DurableLogs):
                        logs = DurableLogs(revision=entry.revision)
                    durable[key.broker.broker_id] = logs
        return ReplicaSetView(self._replica_set_of(replica_set_entry), entries, live, durable)

    def election_due(self, replica_set: ReplicaSet, live: LiveReplicas) -> Election | None:
        """The result of `elect`, with every live replica in the record."""
        if election.has_master(replica_set, live):
            return None
        for broker_id in live:
            replica_set = election.with_replica(replica_set, broker_id)
        return election.elect(
            replica_set,
            self._positions.newest(live),
            allow_unclean=self._allow_unclean,
            confirmed_end=self._positions.confirmed_end(replica_set),
        )

    def short_of(self, replica_set: ReplicaSet, live: LiveReplicas) -> dict[int, int]:
        """Live in-sync replicas that, as far as is known, lack some of what was confirmed: where
        their logs end, by broker id."""
        newest, end = self._positions.newest(live), self._positions.confirmed_end(replica_set)
        return {
            one.key.broker_id: one.log_end for one in election.short_of(replica_set, newest, end)
        }

    def confirmed_end(self, replica_set: ReplicaSet) -> int:
        """How much of the replica set's log is known to be confirmed."""
        return self._positions.confirmed_end(replica_set)

    async def learn_noted(self, replica_set: ReplicaSet) -> None:
        """Read from etcd how far the set's log is confirmed: its master may have been connected
        elsewhere, or to a nameserver that is gone.

        Raises RegistryUnavailable: etcd is away.
        """
        _, entries = await self._etcd.get_with_prefixes(
            self._keys.replica_set(replica_set.broker_name),
            self._keys.durable_of(replica_set.broker_name),
        )
        durable = {}
        for entry in entries:
            match self._keys.parse(entry.key), self._readable(entry):
                case DurableKey() as key, DurableLogs() as logs:
                    durable[key.broker.broker_id] = logs
        self.note_confirmed(replica_set, durable)

    def note_confirmed(self, replica_set: ReplicaSet, durable: Mapping[int, DurableLogs]) -> None:
        """The same, for a caller that has already read it."""
        self._positions.read_notes(replica_set, durable)

    async def hold(self, before: ReplicaSet, due: Election) -> ReplicaSet | None:
        """Make an election's outcome the record; None: something has changed since the decision.

        Raises:
            RegistryUnavailable: it is unknown whether the election took place.
        """
        elected = self._put(before, due.replica_set, self.expected(due))
        done = await self._etcd.transaction(elected.expected, elected.changes)
        if not done.succeeded:
            return None
        written = dataclasses.replace(elected.value, revision=done.revision)
        log_election(before, written, due, self.confirmed_end(before))
        return written

    def expected(self, due: Election) -> dict[str, int]:
        """The etcd keys and revisions on which an election rests."""
        return {self._keys.broker(key): revision for key, revision in due.expects.items()}

    async def alter_in_sync_set(
        self,
        broker_name: str,
        *,
        master: tuple[int, str],
        epoch: int,
        in_sync: tuple[InSyncReplica, ...],
        expected_revision: int,
    ) -> ReplicaSet:
        """Set the in-sync set if the record is still at `expected_revision`.

        Returns the record as it is now: with `in_sync`, or, if it had changed before, without. In
        that case nothing was changed, and no earlier attempt from that revision can still succeed.

        Raises:
            StaleEpoch: the caller is not the replica set's master under that epoch.
            InvalidArgument: the set lacks the master or names unknown replicas.
            RegistryUnavailable: it is unknown whether the change was made.
        """

        def decide(view: ReplicaSetView) -> Write[ReplicaSet] | Keep[ReplicaSet]:
            replica_set = view.replica_set
            if replica_set is None:
                raise StaleEpoch(f"there is no record of {broker_name}: its master must register")
            altered = election.alter_in_sync_set(
                replica_set, master=master, epoch=epoch, in_sync=in_sync
            )
            if altered == replica_set or replica_set.revision != expected_revision:
                return Keep(replica_set)
            return self._put(replica_set, altered)

        found, is_written = await self._changed(broker_name, decide)
        if is_written:
            log_event(
                log,
                "in-sync set",
                group=broker_name,
                epoch=epoch,
                in_sync=[name.broker_id for name in found.in_sync],
            )
        return found

    async def remove_replica(self, broker_name: str, broker_id: int) -> ReplicaSet:
        """Take a replica that is gone for good out of the record.

        Raises:
            GroupNotFound: there is no such replica set.
            InvalidArgument: the replica is alive, the master, in sync, or unknown.
            RegistryUnavailable: it is unknown whether the change was made.
        """
        key = BrokerKey(broker_name, broker_id)
        gone = self._keys.broker(key)

        def decide(view: ReplicaSetView) -> Write[ReplicaSet]:
            if view.replica_set is None:
                raise _unknown(broker_name)
            remaining = election.without_replica(view.replica_set, broker_id, view.live)
            forgotten = Delete(self._keys.durable(key))
            return self._put(view.replica_set, remaining, {gone: 0}, forgotten)

        written, _ = await self._changed(broker_name, decide)
        log_event(log, "replica removed", group=broker_name, broker_id=broker_id)
        return written

    async def set_state(
        self, broker_name: str, state: SetState, *, may_be: Collection[SetState]
    ) -> ReplicaSet:
        """Open, close or remove a replica set; nothing is changed if it is already in that state.

        Raises:
            GroupNotFound: there is no such replica set.
            InvalidArgument: its current state does not allow that.
            RegistryUnavailable: it is unknown whether the change was made.
        """

        def decide(view: ReplicaSetView) -> Write[ReplicaSet] | Keep[ReplicaSet]:
            replica_set = view.replica_set
            if replica_set is None:
                raise _unknown(broker_name)
            if replica_set.state is state:
                return Keep(replica_set)
            if replica_set.state not in may_be:
                wanted = " or ".join(may_be)
                raise InvalidArgument(
                    f"broker group {broker_name!r} is {replica_set.state}; only one that is "
                    f"{wanted} can become {state}"
                )
            return self._put(replica_set, dataclasses.replace(replica_set, state=state))

        found, is_written = await self._changed(broker_name, decide)
        if is_written:
            log_event(log, "broker group", group=broker_name, state=state)
        return found

    async def _changed(
        self,
        broker_name: str,
        decide: Callable[[ReplicaSetView], Write[ReplicaSet] | Keep[ReplicaSet]],
    ) -> tuple[ReplicaSet, bool]:
        """The record as it is now, and whether that was written here."""
        found, revision = await changed(
            self._etcd,
            partial(self.view, broker_name),
            decide,
            what=f"the record of {broker_name}",
        )
        if not revision:
            return found, False
        return dataclasses.replace(found, revision=revision), True

    def _put(
        self,
        before: ReplicaSet,
        after: ReplicaSet,
        expected: Mapping[str, int] = MappingProxyType({}),
        *also: Delete,
    ) -> Write[ReplicaSet]:
        key = self._keys.replica_set(before.broker_name)
        return Write(
            after,
            {**expected, key: before.revision},
            [Put(key, encode_replica_set(after)), *also],
        )

    def _replica_set_of(self, entry: KeyValue | None) -> ReplicaSet | None:
        if entry is None:
            return None
        try:
            replica_set = self._keys.decode(entry)
        except Unreadable as error:
            # Overwriting it could make a replica master that lacks messages.
            raise RegistryUnavailable(
                f"a group's record in etcd is damaged ({error}); correct it by hand"
            ) from error
        assert isinstance(replica_set, ReplicaSet), "a group key holds a group"
        return replica_set

    def _readable(self, entry: KeyValue) -> Stored | None:
        """The value of a key; an unreadable one counts as nobody's."""
        try:
            return self._keys.decode(entry)
        except Unreadable as error:
            log_event(log, "unreadable value", level=logging.WARNING, key=entry.key, reason=error)
            return None


def _unknown(broker_name: str) -> GroupNotFound:
    return GroupNotFound(f"there is no broker group {broker_name!r}; check the spelling")


def is_hasty(before: ReplicaSet, due: Election) -> bool:
    """Whether the choice depends on how far the logs reach, so that others should be heard
    first."""
    if due.is_record_lost or (due.is_short and not due.is_unclean):
        return True
    if not before.in_sync or len(due.replica_set.replicas) == 1:
        return False
    return due.is_unclean


def log_election(
    before: ReplicaSet, elected: ReplicaSet, due: Election, confirmed_end: int
) -> None:
    """`confirmed_end`: how much of the log was known to be confirmed."""
    is_unclean = due.is_unclean
    log_event(
        log,
        "unclean election: acknowledged messages may be lost" if is_unclean else "master elected",
        level=logging.ERROR if is_unclean else logging.INFO,
        group=elected.broker_name,
        epoch=elected.epoch,
        master=elected.master_id,
        former=before.master_id,
        in_sync=[name.broker_id for name in elected.in_sync],
        confirmed_end=confirmed_end,
    )
