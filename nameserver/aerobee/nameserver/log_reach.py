"""PURE: how far logs reach, are confirmed and are on disk; whether a log that registers is
complete.

Owns: what this nameserver has learned about this (LogPositions), and the rules for what is recorded
in etcd. The log position of each connected broker's last heartbeat is newer than the one in etcd,
which is written only with a registration. For each replica set it also knows how far the logs of
its masters are confirmed. That is a lower bound: it outlives the master's stream, and every in-sync
log has at least this much.

An incarnation names a log for as long as it has lost nothing, and the replica itself claims this. A
copied folder claims it too, and does not know that it is old. So what was confirmed and on disk is
recorded outside of it: a log of the same incarnation that ends before that has lost something.

Invariant: the end known to be confirmed never falls under one record, and counts for a later one
only if there is no unclean election in between, which may have lost it. For one incarnation the
recorded end never falls, and it is kept as long as the in-sync set names the incarnation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import NamedTuple

from aerobee.nameserver.election import LiveReplicas
from aerobee.nameserver.stored import (
    BrokerKey,
    BrokerRecord,
    DurableLog,
    DurableLogs,
    ReplicaSet,
)
from aerobee.runtime.errors import ReplicaIncomplete


class _Heard(NamedTuple):
    instance: str
    log_epoch: int
    log_end: int


class _Confirmed(NamedTuple):
    epoch: int
    master_instance: str
    end: int


class LogPositions:
    """Positions of connected brokers; confirmed ends of replica sets."""

    def __init__(self) -> None:
        self._heard: dict[BrokerKey, _Heard] = {}
        self._confirmed: dict[str, _Confirmed] = {}
        self._noted: dict[BrokerKey, DurableLogs] = {}

    def heard(self, record: BrokerRecord) -> None:
        """A broker reported where its log ends."""
        self._heard[record.key] = _Heard(record.instance, record.log_epoch, record.log_end)

    def forget(self, key: BrokerKey) -> None:
        """The broker is no longer connected."""
        self._heard.pop(key, None)

    def newest(self, live: LiveReplicas) -> LiveReplicas:
        """`live` with the positions known here."""
        return {broker_id: self._with_position(record) for broker_id, record in live.items()}

    def read_notes(self, replica_set: ReplicaSet, durable: Mapping[int, DurableLogs]) -> None:
        """Take over what etcd has recorded about the replicas, by broker id. Their heartbeats may
        go to another nameserver, and their logs may be longer than when they registered."""
        for broker_id, logs in durable.items():
            self._noted[BrokerKey(replica_set.broker_name, broker_id)] = logs
        self.confirmed(replica_set, confirmed_end(replica_set, durable))

    def confirmed(self, replica_set: ReplicaSet, end: int) -> None:
        """Everything below `end` is confirmed under this record; an outdated one says nothing."""
        known = self._confirmed.get(replica_set.broker_name)
        if known is not None and known.epoch > replica_set.epoch:
            return
        end = max(end, self.confirmed_end(replica_set))
        self._confirmed[replica_set.broker_name] = _Confirmed(
            replica_set.epoch, replica_set.master_instance, end
        )

    def confirmed_end(self, replica_set: ReplicaSet) -> int:
        """How many bytes are known to be in every log that is in sync by this record; 0:
        unknown."""
        known = self._confirmed.get(replica_set.broker_name)
        if known is None or known.epoch > replica_set.epoch:
            return 0  # the record is outdated, or etcd was restored from a backup
        if (
            known.epoch == replica_set.epoch
            and known.master_instance != replica_set.master_instance
        ):
            return 0
        is_cut = any(
            known.epoch < epoch <= replica_set.epoch for epoch in replica_set.unclean_epochs
        )
        return 0 if is_cut else known.end

    def _with_position(self, record: BrokerRecord) -> BrokerRecord:
        heard = self._heard.get(record.key)
        position = record.log_epoch, record.log_end
        if heard is not None and heard.instance == record.instance:
            position = max(position, (heard.log_epoch, heard.log_end))
        epoch, end = position
        noted = self._noted.get(record.key)
        for log in () if noted is None else noted.logs:
            if (log.incarnation, log.told_by) == (record.incarnation, record.instance):
                end = max(end, log.end)
        return dataclasses.replace(record, log_epoch=epoch, log_end=end)


def noted(durable: DurableLogs, log: DurableLog, named: Collection[str]) -> DurableLogs:
    """The record with what a registered replica says about its log; `named` are the incarnations
    under which the in-sync set has this replica. The same object if nothing changed."""
    known = next((one for one in durable.logs if one.incarnation == log.incarnation), None)
    if known is not None and known.end >= log.end:
        return durable
    others = (one for one in durable.logs if one.incarnation != log.incarnation)
    kept = [one for one in others if one.incarnation in named]
    return dataclasses.replace(durable, logs=(*kept, log))


def check_whole(durable: DurableLogs, wished: BrokerRecord, opened_end: int | None) -> None:
    """`opened_end` is where the log ended when the instance opened it; None: an older version,
    which does not say and would not understand a refusal.

    Raises ReplicaIncomplete: the log lacks what its incarnation is known to have had.
    """
    if opened_end is None:
        return
    for log in durable.logs:
        # What this same instance has said is true of the folder that it has open. What others said
        # must have been there before it wrote anything itself.
        is_other = log.incarnation == wished.incarnation and log.told_by != wished.instance
        if is_other and opened_end < log.end:
            name = f"{wished.key.broker_name}/{wished.key.broker_id}"
            raise ReplicaIncomplete(
                f"the log of {name} ended at {opened_end} when its folder was opened, although "
                f"{log.end} bytes were confirmed and on its disk before: an older copy of the "
                "folder was put back, or the disk lost bytes; the replica must register as "
                "another log"
            )


def compared(durable: DurableLogs, wished: BrokerRecord, named: Collection[str]) -> BrokerRecord:
    """The record, and whether its log, which counts as a different one, lacks what the in-sync set
    relies on. A replica that lost power still has everything that was on its disk; an old copy does
    not."""
    missed = any(log.incarnation in named and log.end > wished.log_end for log in durable.logs)
    return dataclasses.replace(wished, is_incomplete=missed and wished.incarnation not in named)


def confirmed_end(replica_set: ReplicaSet, durable: Mapping[int, DurableLogs]) -> int:
    """How far the log of every in-sync replica reaches, according to the notes, by broker id: what
    one of them had confirmed, all of them have."""
    named = {(one.broker_id, one.incarnation) for one in replica_set.in_sync}
    ends = (
        log.end
        for broker_id, logs in durable.items()
        for log in logs.logs
        if (broker_id, log.incarnation) in named
    )
    return max(ends, default=0)


def named_in_sync(replica_set: ReplicaSet | None, key: BrokerKey) -> frozenset[str]:
    """The incarnations under which a replica counts as having everything."""
    in_sync = () if replica_set is None else replica_set.in_sync
    return frozenset(one.incarnation for one in in_sync if one.broker_id == key.broker_id)
