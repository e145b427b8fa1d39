"""PURE: who becomes master of a replica set, and which changes to its record are allowed.

A decision is made from one view of the set and its live replicas, and takes effect only through a
compare-and-swap that expects exactly this view (`expects`). So several nameservers may decide at
the same time, and one succeeds.

A master is replaced only once it is certain to acknowledge nothing more under its epoch: its
registration has ended with its lease, which the master itself ends earlier; another process has
taken over its folder; or it has resigned.

A clean election loses nothing that was confirmed: the in-sync set names the replicas that have
everything, and a replica known to end before the confirmed end is not trusted. A replica whose disk
hangs is not elected, since it could not start; if it is the only one that has everything, the set
waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aerobee.domain.broker_condition import BrokerCondition
from aerobee.nameserver.stored import (
    NO_MASTER,
    BrokerKey,
    BrokerRecord,
    InSyncReplica,
    ReplicaSet,
)
from aerobee.runtime.errors import InvalidArgument, StaleEpoch

UNCLEAN_EPOCHS_MAX = 100

LiveReplicas = Mapping[int, BrokerRecord]
"""Registered replicas of one replica set by broker id."""


@dataclass(frozen=True, slots=True)
class Election:
    """A new record of a replica set, and what must still hold when it is written."""

    replica_set: ReplicaSet
    expects: Mapping[BrokerKey, int]
    """Revisions of the registrations on which the decision rests; 0: must not exist."""
    is_unclean: bool = False
    is_short: bool = False
    """As far as is known, an in-sync replica ends before the confirmed end, or all live replicas of
    a set that had a master are empty. A newer heartbeat may change that."""
    is_record_lost: bool = False
    """The record names no replica in sync although a log already has an epoch: the next replica to
    register may have more than the chosen one."""


def elect(
    replica_set: ReplicaSet, live: LiveReplicas, *, allow_unclean: bool, confirmed_end: int = 0
) -> Election | None:
    """The election that is due, or None: the master is well, or no replica can succeed it.

    `confirmed_end`: at least this much of the log was confirmed under this record; a log that lacks
    some of it is never elected cleanly. The positions in `live` may be older.
    """
    if has_master(replica_set, live):
        return None
    chosen, is_unclean = _choose(
        replica_set, live, allow_unclean=allow_unclean, confirmed_end=confirmed_end
    )
    if chosen is None:
        return None
    epoch = max(replica_set.epoch, max(record.log_epoch for record in live.values())) + 1
    kept = [
        name
        for name in replica_set.in_sync
        if not is_unclean and _is_intact(name, live) and _is_able(live[name.broker_id])
    ]
    own = InSyncReplica(chosen.key.broker_id, chosen.incarnation)
    others = [name for name in kept if name.broker_id != own.broker_id]
    unclean_epochs = (
        (*replica_set.unclean_epochs, epoch) if is_unclean else replica_set.unclean_epochs
    )
    elected = replace(
        replica_set,
        epoch=epoch,
        master_id=own.broker_id,
        master_instance=chosen.instance,
        in_sync=tuple(sorted([own, *others])),
        replicas=tuple(sorted({*replica_set.replicas, own.broker_id})),
        unclean_epochs=unclean_epochs[-UNCLEAN_EPOCHS_MAX:],
    )
    # Which log is longest depends on all of them: each must still be as it was seen.
    seen = live.values() if is_unclean else (chosen,)
    expects = {record.key: record.revision for record in seen}
    if replica_set.master_id not in (NO_MASTER, own.broker_id):
        former = live.get(replica_set.master_id)
        key = BrokerKey(replica_set.broker_name, replica_set.master_id)
        expects[key] = 0 if former is None else former.revision
    is_record_lost = not replica_set.in_sync and any(
        record.log_epoch > 0 for record in live.values()
    )
    short = {record.key.broker_id for record in short_of(replica_set, live, confirmed_end)}
    is_short = _wished(replica_set, live) in short
    if is_unclean:
        is_short = bool(short) or chosen.log_epoch == 0
    return Election(elected, expects, is_unclean, is_short, is_record_lost)


def short_of(replica_set: ReplicaSet, live: LiveReplicas, confirmed_end: int) -> list[BrokerRecord]:
    """Live in-sync replicas that, as far as is known, lack some of what was confirmed."""
    return [record for record in _intact(replica_set, live) if record.log_end < confirmed_end]


def is_master(replica_set: ReplicaSet, record: BrokerRecord) -> bool:
    """Whether this registered process may acknowledge under the replica set's epoch."""
    return (
        record.key.broker_id == replica_set.master_id
        and record.instance == replica_set.master_instance
        and record.resigned_epoch != replica_set.epoch
    )


def has_master(replica_set: ReplicaSet, live: LiveReplicas) -> bool:
    """Whether any process may still acknowledge under the replica set's epoch."""
    master = live.get(replica_set.master_id)
    return master is not None and is_master(replica_set, master)


def _is_intact(name: InSyncReplica, live: LiveReplicas) -> bool:
    record = live.get(name.broker_id)
    return record is not None and record.incarnation == name.incarnation


def _intact(replica_set: ReplicaSet, live: LiveReplicas) -> list[BrokerRecord]:
    return [live[name.broker_id] for name in replica_set.in_sync if _is_intact(name, live)]


def _choose(
    replica_set: ReplicaSet, live: LiveReplicas, *, allow_unclean: bool, confirmed_end: int
) -> tuple[BrokerRecord | None, bool]:
    """The next master, and whether its election is unclean."""
    whole = [record for record in _intact(replica_set, live) if record.log_end >= confirmed_end]
    able = [record for record in whole if _is_able(record)]
    if able:
        return _preferred(replica_set, live, able), False
    if whole and not allow_unclean:
        return None, False
    candidates = [record for record in live.values() if _is_able(record) or not allow_unclean]
    if not candidates:
        return None, False
    furthest = max(candidates, key=_reach)
    if not _is_able(furthest):
        return None, False
    if not replica_set.in_sync:
        # A new set, in which nothing was ever acknowledged; unless a log already has an epoch: then
        # the record was lost, and with it which replicas had everything. Whatever the longest log
        # lacks is lost.
        return furthest, furthest.log_epoch > 0 and len(replica_set.replicas) > 1
    # A replica that never followed a master of this set has nothing to offer, and that master may
    # not even know that it is not alone. The exception: all replicas are here, including those
    # whose disks hang, and none of them has anything.
    is_all = all(one in live for one in replica_set.replicas)
    has_any = any(record.log_epoch > 0 for record in live.values())
    has_followed = furthest.log_epoch > 0 or (is_all and not has_any)
    if has_followed and (allow_unclean or _are_back(replica_set, live)):
        # What only the lost logs had is gone: the epoch is recorded as unclean, so that replicas
        # that kept more than the new master may truncate.
        return furthest, True
    return None, False


def _is_able(record: BrokerRecord) -> bool:
    return record.condition is not BrokerCondition.DISK_HUNG


def _are_back(replica_set: ReplicaSet, live: LiveReplicas) -> bool:
    """Whether waiting for an intact log is pointless: the whole in-sync set is here, and all of it
    lacks bytes.

    The live replica with the longest log then has everything that any of them knows to be
    confirmed. A log that was emptied, or is an old copy, does not count as back while other
    replicas are missing: if all die at once, it may be left alone in the set.
    """
    back = [live[name.broker_id] for name in replica_set.in_sync if name.broker_id in live]
    if len(back) < len(replica_set.in_sync):
        return False
    is_all = all(broker_id in live for broker_id in replica_set.replicas)
    return is_all or any(record.log_epoch > 0 and not record.is_incomplete for record in back)


def _preferred(
    replica_set: ReplicaSet, live: LiveReplicas, whole: list[BrokerRecord]
) -> BrokerRecord:
    """All candidates have everything that was confirmed."""
    wished = _wished(replica_set, live)
    for record in whole:
        if record.key.broker_id == wished:
            return record
    return max(whole, key=_reach)


def _wished(replica_set: ReplicaSet, live: LiveReplicas) -> int | None:
    """The successor that a resigning master wishes for."""
    former = live.get(replica_set.master_id)
    has_resigned = former is not None and former.resigned_epoch == replica_set.epoch
    return former.successor_id if former is not None and has_resigned else None


def _reach(record: BrokerRecord) -> tuple[int, int, int]:
    """Sort key: how much of the log it has; among equals, the lowest id first."""
    return record.log_epoch, record.log_end, -record.key.broker_id


def alter_in_sync_set(
    replica_set: ReplicaSet,
    *,
    master: tuple[int, str],
    epoch: int,
    in_sync: tuple[InSyncReplica, ...],
) -> ReplicaSet:
    """The record with another in-sync set, as requested by its master (id, instance).

    Raises:
        StaleEpoch: the caller is not the master of that epoch.
        InvalidArgument: the set lacks the master, or names a replica twice or an unknown one.
    """
    if (replica_set.master_id, replica_set.master_instance, replica_set.epoch) != (*master, epoch):
        raise StaleEpoch(
            f"replica {master[0]} is not the master of {replica_set.broker_name} under epoch "
            f"{epoch}: epoch {replica_set.epoch} has master {replica_set.master_id}"
        )
    ids = [name.broker_id for name in in_sync]
    if master[0] not in ids or len(set(ids)) != len(ids):
        raise InvalidArgument("an in-sync set must name its master, and each replica once")
    unknown = sorted(set(ids) - set(replica_set.replicas))
    if unknown:
        raise InvalidArgument(f"replicas {unknown} of {replica_set.broker_name} never registered")
    return replace(replica_set, in_sync=tuple(sorted(in_sync)))


def with_replica(replica_set: ReplicaSet, broker_id: int) -> ReplicaSet:
    """The record with a newly registered replica."""
    return replace(replica_set, replicas=tuple(sorted({*replica_set.replicas, broker_id})))


def without_replica(replica_set: ReplicaSet, broker_id: int, live: LiveReplicas) -> ReplicaSet:
    """The record without a replica that is gone for good.

    Raises:
        InvalidArgument: it is alive, in the in-sync set, the master, or unknown.
    """
    if broker_id not in replica_set.replicas:
        raise InvalidArgument(f"{replica_set.broker_name} has no replica {broker_id}")
    if broker_id in live:
        raise InvalidArgument(
            f"replica {broker_id} of {replica_set.broker_name} is alive: stop it first"
        )
    if broker_id == replica_set.master_id or broker_id in {
        name.broker_id for name in replica_set.in_sync
    }:
        raise InvalidArgument(
            f"replica {broker_id} of {replica_set.broker_name} may be the only one with all "
            "messages: wait until its master has taken it out of the in-sync set"
        )
    return replace(
        replica_set, replicas=tuple(one for one in replica_set.replicas if one != broker_id)
    )
