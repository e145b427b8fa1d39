"""PURE: how far logs reach, and are confirmed, as far as this nameserver has heard.

Owns: the log position of each connected broker's last heartbeat, which is newer than what stands in
etcd, where it is written with a registration only; and for each group how far its masters' logs are
known to be confirmed. That is a lower bound: it outlives the master's stream, and every log that is
in sync has at least so much.

What always holds: the end that is known to be confirmed never falls under one record, and counts
for a later one only if no unclean election lies in between, which may have taken it.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from aerobee.nameserver.election import LiveReplicas
from aerobee.nameserver.stored import BrokerGroup, BrokerKey, BrokerRecord


class _Heard(NamedTuple):
    instance: str
    log_epoch: int
    log_end: int


class _Confirmed(NamedTuple):
    epoch: int
    master_instance: str
    end: int


class LogPositions:
    """Positions by broker, bounded by the brokers that are connected; confirmed ends by group."""

    def __init__(self) -> None:
        self._heard: dict[BrokerKey, _Heard] = {}
        self._confirmed: dict[str, _Confirmed] = {}

    def heard(self, record: BrokerRecord) -> None:
        """A broker said where its log ends."""
        self._heard[record.key] = _Heard(record.instance, record.log_epoch, record.log_end)

    def forget(self, key: BrokerKey) -> None:
        """The broker is not connected any more."""
        self._heard.pop(key, None)

    def newest(self, live: LiveReplicas) -> LiveReplicas:
        """`live` with the positions that are known here."""
        return {broker_id: self._with_position(record) for broker_id, record in live.items()}

    def confirmed(self, group: BrokerGroup, end: int) -> None:
        """Everything below `end` is confirmed under this record; an outdated one says nothing."""
        known = self._confirmed.get(group.broker_name)
        if known is not None and known.epoch > group.epoch:
            return
        end = max(end, self.confirmed_end(group))
        self._confirmed[group.broker_name] = _Confirmed(group.epoch, group.master_instance, end)

    def confirmed_end(self, group: BrokerGroup) -> int:
        """So much is known to be in every log that is in sync by this record; 0: nothing known."""
        known = self._confirmed.get(group.broker_name)
        if known is None or known.epoch > group.epoch:
            return 0  # the record is outdated, or etcd was restored from a backup
        if known.epoch == group.epoch and known.master_instance != group.master_instance:
            return 0
        is_cut = any(known.epoch < epoch <= group.epoch for epoch in group.unclean_epochs)
        return 0 if is_cut else known.end

    def _with_position(self, record: BrokerRecord) -> BrokerRecord:
        heard = self._heard.get(record.key)
        if heard is None or heard.instance != record.instance:
            return record
        position = max((record.log_epoch, record.log_end), (heard.log_epoch, heard.log_end))
        return dataclasses.replace(record, log_epoch=position[0], log_end=position[1])
