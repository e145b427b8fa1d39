"""Broker registrations: one leased key for each live broker process.

Owns: which process holds a key. A key belongs to one instance (one start of one process):

  key is absent, or ours                 -> ours
  another instance, whose stream is open -> refused: it lives, whatever the newcomer says
  another instance, at another address   -> refused until that one leaves or its lease ends, unless
                                            we used its folder after it
  another instance, at the same address  -> ours: it could not have bound the port otherwise, so the
                                            earlier process is gone; but if it is the master of a
                                            set with other replicas, only when we used its folder
                                            after it, which is locked while it lives

Every change is a transaction on the key and on its replica set's record, so two claims at once
cannot both succeed, and a claim sees the set as of its own moment. If the claim makes an election
due (the first of a set, a restarted master, one that resigns), the same transaction holds it.

A log that lacks what its incarnation is known to have had (log_reach.py) is not registered.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from functools import partial

from aerobee.nameserver import election, log_reach
from aerobee.nameserver.compare_and_swap import Keep, Write, changed
from aerobee.nameserver.config import BrokerLeaseConfig
from aerobee.nameserver.key_value_store import KeyValueStore
from aerobee.nameserver.key_values import Delete, Lease, LeaseNotFound, Put
from aerobee.nameserver.replica_sets import ReplicaSets, ReplicaSetView, is_hasty, log_election
from aerobee.nameserver.stored import (
    BrokerKey,
    BrokerRecord,
    DurableLog,
    DurableLogs,
    Keys,
    ReplicaSet,
    encode_broker,
    encode_durable,
    encode_replica_set,
)
from aerobee.runtime.errors import DuplicateBroker
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Registered:
    """A registration that is in etcd."""

    record: BrokerRecord
    lease_duration_ms: int
    """As etcd granted it."""
    replica_set: ReplicaSet
    """As of the claim or newer; never older."""
    live: election.LiveReplicas
    """Who was registered right before the claim."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What one attempt to register found and prepared."""

    view: ReplicaSetView
    current: BrokerRecord | None
    """Whose registration is replaced, or kept."""
    wished: BrokerRecord
    lease: Lease
    is_new: bool
    """The lease was granted for this attempt."""

    @property
    def before(self) -> ReplicaSet:
        """The replica set, or the one to begin with."""
        return self.view.replica_set or ReplicaSet(self.wished.key.broker_name)


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a registration changes, and what it expects."""

    attempt: _Attempt
    replica_set: ReplicaSet
    """As it will be."""
    expected: dict[str, int]
    due: election.Election | None

    @property
    def changes_set(self) -> bool:
        """Whether the replica set's record changes."""
        return self.replica_set != self.attempt.view.replica_set


class Registry:
    """The broker keys of one cluster."""

    def __init__(
        self, etcd: KeyValueStore, keys: Keys, replica_sets: ReplicaSets, config: BrokerLeaseConfig
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._replica_sets = replica_sets
        self._config = config

    def lease_duration_ms(self, wished_ms: int) -> int:
        """The lease of a broker that wishes for `wished_ms` (0: no wish)."""
        wished_ms = wished_ms or self._config.default_ms
        return min(max(wished_ms, self._config.min_ms), self._config.max_ms)

    async def register(
        self,
        wished: BrokerRecord,
        wished_lease_ms: int,
        *,
        is_start: bool = True,
        opened_end: int | None = None,
    ) -> Registered:
        """Put `wished` at its key, or keep it there.

        `is_start`: the process may have just started, so it may succeed an earlier one at its
        address. A process that was already registered has itself been succeeded in that case.
        `opened_end`: where its log ended when it opened the log, if it says so.

        Raises:
            DuplicateBroker: a live instance holds the key.
            ReplicaIncomplete: the log lacks what its incarnation is known to have had.
            RegistryUnavailable: etcd is away, or the replica set's record is damaged.
        """

        async def read() -> _Attempt:
            nonlocal wished
            view = await self._replica_sets.view(wished.key.broker_name)
            current = view.live.get(wished.key.broker_id)
            if current is not None:
                _check_claim(view, current, wished, is_start=is_start)
                wished = with_resignation(current, wished)
            durable = view.durable.get(wished.key.broker_id, DurableLogs())
            log_reach.check_whole(durable, wished, opened_end)
            named = log_reach.named_in_sync(view.replica_set, wished.key)
            wished = log_reach.compared(durable, wished, named)
            lease, is_new = await self._lease_for(current, wished, wished_lease_ms)
            attempt = _Attempt(view, current, wished, lease, is_new)
            self._replica_sets.note_confirmed(attempt.before, view.durable)
            return attempt

        def decide(attempt: _Attempt) -> Write[_Claim] | Keep[_Claim]:
            claim = self._claim(attempt)
            # A new stream always writes: then the late end of an earlier one cannot be mistaken for
            # its own.
            may_keep = not attempt.is_new and not is_start
            if may_keep and _is_enough(claim):
                # The key existed before and after the lease was renewed, so it existed throughout:
                # no one was elected in its place since the view was read.
                return Keep(claim)
            return Write(claim, claim.expected, self._changes(claim))

        async def return_lease(attempt: _Attempt) -> None:
            if attempt.is_new:
                await self._etcd.revoke_lease(attempt.lease.lease_id)

        what = f"the registration of {_name(wished.key)}"
        claim, revision = await changed(self._etcd, read, decide, what=what, on_lost=return_lease)
        registered = self._registered(claim, revision)
        entry = claim.attempt.view.entries.get(wished.key)
        if claim.attempt.is_new and entry is not None and entry.lease_id != 0:
            # Permanently ends the earlier instance's claim, should it still be alive.
            await self._etcd.revoke_lease(entry.lease_id)
        return registered

    async def renew(
        self,
        registered: Registered,
        wished: BrokerRecord,
        wished_lease_ms: int,
        *,
        opened_end: int | None = None,
    ) -> Registered:
        """Keep the registration alive with the broker's current state; register again if it is
        lost.

        Raises:
            DuplicateBroker, ReplicaIncomplete, RegistryUnavailable: as `register`.
        """
        register = partial(
            self.register, wished, wished_lease_ms, is_start=False, opened_end=opened_end
        )
        if not _same_but_position(registered.record, wished):
            return await register()
        try:
            lease = await self._etcd.keep_alive(registered.record.lease_id)
        except LeaseNotFound:
            log_event(
                log,
                "lost broker lease is replaced",
                level=logging.WARNING,
                broker=_name(wished.key),
            )
            return await register()
        return dataclasses.replace(registered, lease_duration_ms=lease.duration_ms)

    async def note_durable(self, record: BrokerRecord, end: int) -> bool:
        """Record that the log of a registered process is confirmed and on its disk up to `end`.

        Returns whether etcd has recorded that or more; False: something has changed in the
        meantime, or the process is no longer registered.

        Raises RegistryUnavailable: it is unknown whether it was recorded.
        """
        view = await self._replica_sets.view(record.key.broker_name)
        current = view.live.get(record.key.broker_id)
        if current is None or current.instance != record.instance:
            return False
        return await self._note(view, current, end)

    async def _note(self, view: ReplicaSetView, current: BrokerRecord, end: int) -> bool:
        key = current.key
        before = view.durable.get(key.broker_id, DurableLogs())
        after = log_reach.noted(
            before,
            DurableLog(current.incarnation, end, current.instance),
            log_reach.named_in_sync(view.replica_set, key),
        )
        if after is before:
            return True
        # Keep what the set names; what a succeeded process says no longer counts.
        expected = {
            self._keys.durable(key): before.revision,
            self._keys.broker(key): current.revision,
            self._keys.replica_set(key.broker_name): 0
            if view.replica_set is None
            else view.replica_set.revision,
        }
        change = Put(self._keys.durable(key), encode_durable(after))
        return (await self._etcd.transaction(expected, [change])).succeeded

    async def note_disconnected(self, key: BrokerKey, stream: str) -> None:
        """Record that the stream of a registered process has ended, unless another stream of that
        process, or another process, has registered since. The ended stream's last write may still
        be on its way to etcd; then what it writes is recorded.

        Raises RegistryUnavailable: it is unknown whether it was recorded.
        """

        def decide(view: ReplicaSetView) -> Write[None] | Keep[None]:
            current = view.live.get(key.broker_id)
            if current is None or current.stream != stream:
                return Keep(None)
            ended = dataclasses.replace(current, is_connected=False)
            change = Put(self._keys.broker(key), encode_broker(ended), current.lease_id)
            return Write(None, {change.key: current.revision}, [change])

        read = partial(self._replica_sets.view, key.broker_name)
        await changed(self._etcd, read, decide, what=f"the registration of {_name(key)}")

    async def leave(self, key: BrokerKey, instance: str, *, durable_end: int = 0) -> None:
        """Remove the registration if `instance` still holds it; `durable_end`: as `note_durable`, 0
        if unknown."""
        view = await self._replica_sets.view(key.broker_name)
        current = view.live.get(key.broker_id)
        if current is None or current.instance != instance:
            return
        if durable_end > 0:
            await self._note(view, current, durable_end)
        if current.lease_id != 0:
            await self._etcd.revoke_lease(current.lease_id)
        else:
            entry = view.entries[key]
            await self._etcd.transaction({entry.key: entry.revision}, [Delete(entry.key)])

    async def _lease_for(
        self, current: BrokerRecord | None, wished: BrokerRecord, wished_lease_ms: int
    ) -> tuple[Lease, bool]:
        """The lease for it, and whether it is new: the same instance keeps its lease."""
        if current is not None and current.instance == wished.instance and current.lease_id != 0:
            try:
                return await self._etcd.keep_alive(current.lease_id), False
            except LeaseNotFound:
                pass
        duration_ms = self.lease_duration_ms(wished_lease_ms)
        return await self._etcd.grant_lease(duration_ms), True

    def _claim(self, attempt: _Attempt) -> _Claim:
        """The replica set with the broker registered, and with a new master if one is then due."""
        view, wished, before = attempt.view, attempt.wished, attempt.before
        key = wished.key
        entry = view.entries.get(key)
        revision = 0 if entry is None else entry.revision
        replica_set = election.with_replica(before, key.broker_id)
        expected = {
            self._keys.broker(key): revision,
            self._keys.replica_set(key.broker_name): before.revision,
        }
        live = {**view.live, key.broker_id: dataclasses.replace(wished, revision=revision)}
        due = self._replica_sets.election_due(replica_set, live)
        if due is None or is_hasty(replica_set, due):
            return _Claim(attempt, replica_set, expected, None)
        expected = {**self._replica_sets.expected(due), **expected}
        return _Claim(attempt, due.replica_set, expected, due)

    def _changes(self, claim: _Claim) -> list[Put]:
        """The broker's key, and its replica set's if that changes."""
        wished, replica_set = claim.attempt.wished, claim.replica_set
        lease_id = claim.attempt.lease.lease_id
        changes = [Put(self._keys.broker(wished.key), encode_broker(wished), lease_id)]
        if claim.changes_set:
            key = self._keys.replica_set(replica_set.broker_name)
            changes.append(Put(key, encode_replica_set(replica_set)))
        return changes

    def _registered(self, claim: _Claim, revision: int) -> Registered:
        """The outcome of a claim that was written at `revision`; 0: all was there already."""
        attempt, replica_set = claim.attempt, claim.replica_set
        view, lease, record = attempt.view, attempt.lease, attempt.current
        if revision == 0 and record is not None:
            return Registered(record, lease.duration_ms, replica_set, view.live)
        if claim.changes_set:
            replica_set = dataclasses.replace(replica_set, revision=revision)
        if claim.due is not None:
            before = attempt.before
            log_election(before, replica_set, claim.due, self._replica_sets.confirmed_end(before))
        record = dataclasses.replace(attempt.wished, revision=revision, lease_id=lease.lease_id)
        return Registered(record, lease.duration_ms, replica_set, view.live)


def _check_claim(
    view: ReplicaSetView, current: BrokerRecord, wished: BrokerRecord, *, is_start: bool
) -> None:
    if current.instance == wished.instance:
        return
    name = _name(wished.key)
    if current.is_connected:
        raise DuplicateBroker(
            f"broker {name} is already registered at {current.address} by another live process; "
            "stop that one, give this one another name or id, or wait until its stream or its "
            "lease ends"
        )
    # The previous user of the folder that this process has locked is dead, whatever its address
    # was.
    is_its_successor = wished.predecessor == current.instance
    if current.address != wished.address and not is_its_successor:
        raise DuplicateBroker(
            f"broker {name} is already registered at {current.address} by another live process; "
            "stop that one, give this one another name or id, or wait until its lease ends"
        )
    if not is_start or current.predecessor == wished.instance:
        raise DuplicateBroker(
            f"broker {name} at {wished.address} was replaced by a process that started later; "
            "run only one of the two"
        )
    replica_set = view.replica_set
    if (
        replica_set is not None
        and election.is_master(replica_set, current)
        and replica_set.replicas != (wished.key.broker_id,)
        and not is_its_successor
    ):
        raise DuplicateBroker(
            f"broker {name} at {wished.address} is registered as the master of its broker group by "
            "a process with another folder; wait until the lease of that process ends"
        )


def with_resignation(current: BrokerRecord, wished: BrokerRecord) -> BrokerRecord:
    """A process never takes back a resignation; an older heartbeat may arrive later."""
    if current.instance != wished.instance or current.resigned_epoch <= wished.resigned_epoch:
        return wished
    return dataclasses.replace(
        wished, resigned_epoch=current.resigned_epoch, successor_id=current.successor_id
    )


def same_position(current: BrokerRecord, wished: BrokerRecord) -> bool:
    return (current.log_epoch, current.log_end) == (wished.log_epoch, wished.log_end)


def _is_enough(claim: _Claim) -> bool:
    """Whether nothing needs to be written. The end of a log matters only to an election."""
    current, wished = claim.attempt.current, claim.attempt.wished
    if current is None or claim.changes_set or not _same_but_position(current, wished):
        return False
    live = claim.attempt.view.live
    return election.has_master(claim.replica_set, live) or same_position(current, wished)


def _same_but_position(current: BrokerRecord, wished: BrokerRecord) -> bool:
    return current == dataclasses.replace(
        wished,
        log_epoch=current.log_epoch,
        log_end=current.log_end,
        is_incomplete=current.is_incomplete,
        revision=current.revision,
        lease_id=current.lease_id,
    )


def _name(key: BrokerKey) -> str:
    return f"{key.broker_name}/{key.broker_id}"
