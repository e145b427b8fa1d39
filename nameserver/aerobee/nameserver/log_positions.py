"""How far the logs of the brokers reach that are connected to this nameserver.

Owns: the log position of each connected broker's last heartbeat. It is newer than what stands in
etcd, where it is written with a registration only, and makes an election choose better. Nothing
depends on it: every replica of the in-sync set has all that was confirmed.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from aerobee.nameserver.election import LiveReplicas
from aerobee.nameserver.stored import BrokerKey, BrokerRecord


class _Heard(NamedTuple):
    instance: str
    log_epoch: int
    log_end: int


class LogPositions:
    """By broker; bounded by the brokers that are connected."""

    def __init__(self) -> None:
        self._heard: dict[BrokerKey, _Heard] = {}

    def heard(self, record: BrokerRecord) -> None:
        """A broker said where its log ends."""
        self._heard[record.key] = _Heard(record.instance, record.log_epoch, record.log_end)

    def forget(self, key: BrokerKey) -> None:
        """The broker is not connected any more."""
        self._heard.pop(key, None)

    def newest(self, live: LiveReplicas) -> LiveReplicas:
        """`live` with the positions that are known here."""
        return {broker_id: self._with_position(record) for broker_id, record in live.items()}

    def _with_position(self, record: BrokerRecord) -> BrokerRecord:
        heard = self._heard.get(record.key)
        if heard is None or heard.instance != record.instance:
            return record
        position = max((record.log_epoch, record.log_end), (heard.log_epoch, heard.log_end))
        return dataclasses.replace(record, log_epoch=position[0], log_end=position[1])
