"""Broker registrations: one leased key for each live broker process.

Owns: who may stand at a broker's key. A key belongs to one instance (one start of one process):

  key is absent, or ours                    -> ours
  another instance, at the same address     -> ours: it could not have bound the port otherwise,
                                               so the earlier process is gone
  another instance, at another address      -> refused until that one leaves or its lease ends

Every change is a transaction on the key's revision, so two claims at once cannot both succeed.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass

from aerobee.nameserver.config import BrokerLeaseConfig
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.key_values import Delete, KeyValue, Lease, LeaseNotFound, Put
from aerobee.nameserver.stored import (
    BrokerGroup,
    BrokerKey,
    BrokerRecord,
    Keys,
    Unreadable,
    encode_broker,
    encode_group,
)
from aerobee.runtime.errors import DuplicateBroker, RegistryUnavailable
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

_ATTEMPTS_MAX = 8


@dataclass(frozen=True, slots=True)
class Registered:
    """A registration that stands in etcd."""

    record: BrokerRecord
    lease_duration_ms: int
    """As etcd granted it."""


class Registry:
    """The broker keys of one cluster."""

    def __init__(self, etcd: Etcd, keys: Keys, config: BrokerLeaseConfig) -> None:
        self._etcd = etcd
        self._keys = keys
        self._config = config

    def lease_duration_ms(self, wished_ms: int) -> int:
        """What a broker that wishes `wished_ms` (0: no wish) gets."""
        wished_ms = wished_ms or self._config.default_ms
        return min(max(wished_ms, self._config.min_ms), self._config.max_ms)

    async def register(
        self, wished: BrokerRecord, wished_lease_ms: int, *, is_start: bool = True
    ) -> Registered:
        """Put `wished` at its key, or keep it there.

        `is_start`: the process may have just started, so it may succeed an earlier one at its
        address. A process that was registered before has itself been succeeded in that case.

        Raises:
            DuplicateBroker: a live instance at another address holds the key.
            RegistryUnavailable: etcd is away.
        """
        for _ in range(_ATTEMPTS_MAX):
            entry = await self._etcd.get(self._keys.broker(wished.key))
            current = self._record_of(entry)
            if current is not None:
                _check_claim(current, wished, is_start=is_start)
            lease, is_new = await self._lease_for(current, wished, wished_lease_ms)
            if not is_new and current is not None and _same(current, wished):
                return Registered(current, lease.duration_ms)
            done = await self._claim(wished, entry, lease)
            if done is not None:
                if entry is not None and is_new and entry.lease_id != 0:
                    # Ends the earlier instance's claim for good, should it still be alive.
                    await self._etcd.revoke_lease(entry.lease_id)
                return done
            if is_new:
                await self._etcd.revoke_lease(lease.lease_id)
        raise RegistryUnavailable(
            f"the registration of {_name(wished.key)} is being changed by others; try again"
        )

    async def renew(
        self, registered: Registered, wished: BrokerRecord, wished_lease_ms: int
    ) -> Registered:
        """Keep the registration alive with the broker's present state; register anew if it is lost.

        Raises:
            DuplicateBroker, RegistryUnavailable: as `register`.
        """
        try:
            lease = await self._etcd.keep_alive(registered.record.lease_id)
        except LeaseNotFound:
            log_event(
                log,
                "lost broker lease is replaced",
                level=logging.WARNING,
                broker=_name(wished.key),
            )
            return await self.register(wished, wished_lease_ms, is_start=False)
        if _same(registered.record, wished):
            return Registered(registered.record, lease.duration_ms)
        return await self.register(wished, wished_lease_ms, is_start=False)

    async def leave(self, key: BrokerKey, instance: str) -> None:
        """Remove the registration if `instance` still holds it."""
        entry = await self._etcd.get(self._keys.broker(key))
        current = self._record_of(entry)
        if entry is None or current is None or current.instance != instance:
            return
        if current.lease_id != 0:
            await self._etcd.revoke_lease(current.lease_id)
        else:
            await self._etcd.transaction({entry.key: entry.revision}, [Delete(entry.key)])

    async def _lease_for(
        self, current: BrokerRecord | None, wished: BrokerRecord, wished_lease_ms: int
    ) -> tuple[Lease, bool]:
        """The lease to stand under, and whether it is new: the same instance keeps its own."""
        if current is not None and current.instance == wished.instance and current.lease_id != 0:
            try:
                return await self._etcd.keep_alive(current.lease_id), False
            except LeaseNotFound:
                pass
        duration_ms = self.lease_duration_ms(wished_lease_ms)
        return await self._etcd.grant_lease(duration_ms), True

    async def _claim(
        self, wished: BrokerRecord, entry: KeyValue | None, lease: Lease
    ) -> Registered | None:
        """One transaction: the broker's key, and its group's if this is the first of the group."""
        broker_key = self._keys.broker(wished.key)
        group_key = self._keys.group(wished.key.broker_name)
        group_entry = await self._etcd.get(group_key)
        expected = {
            broker_key: 0 if entry is None else entry.revision,
            group_key: 0 if group_entry is None else group_entry.revision,
        }
        changes = [Put(broker_key, encode_broker(wished), lease.lease_id)]
        if group_entry is None:
            changes.append(Put(group_key, encode_group(BrokerGroup(wished.key.broker_name))))
        try:
            done = await self._etcd.transaction(expected, changes)
        except LeaseNotFound:
            return None
        if not done.succeeded:
            return None
        record = dataclasses.replace(wished, revision=done.revision, lease_id=lease.lease_id)
        return Registered(record, lease.duration_ms)

    def _record_of(self, entry: KeyValue | None) -> BrokerRecord | None:
        """The record at a broker's key; an unreadable one counts as nobody's."""
        if entry is None:
            return None
        try:
            record = self._keys.decode(entry)
        except Unreadable as error:
            log_event(log, "unreadable registration is replaced", level=logging.WARNING,
                      key=entry.key, reason=error)  # fmt: skip
            return None
        assert isinstance(record, BrokerRecord), "a broker key holds a broker"
        return record


def _check_claim(current: BrokerRecord, wished: BrokerRecord, *, is_start: bool) -> None:
    if current.instance == wished.instance:
        return
    if current.address != wished.address:
        raise DuplicateBroker(
            f"broker {_name(wished.key)} is already registered at {current.address} by another "
            "live process; stop that one, give this one another name or id, or wait until its "
            "lease ends"
        )
    if not is_start:
        raise DuplicateBroker(
            f"broker {_name(wished.key)} at {wished.address} was succeeded by a process that "
            "started later; only one of the two may run"
        )


def _same(current: BrokerRecord, wished: BrokerRecord) -> bool:
    return current == dataclasses.replace(
        wished, revision=current.revision, lease_id=current.lease_id
    )


def _name(key: BrokerKey) -> str:
    return f"{key.broker_name}/{key.broker_id}"
