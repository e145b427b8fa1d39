"""Sets and deletes quotas, by compare-and-swap in etcd.

Owns: how many there may be. Each answer comes after this nameserver has seen the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from aerobee.access.quota import (
    QUOTAS_MAX,
    UNLIMITED,
    USER,
    Quota,
    Subject,
    check_fields,
    decode_quota,
    encode_quota,
)
from aerobee.access.records import UnreadableRecord
from aerobee.nameserver.compare_and_swap import Write, changed, revision_of
from aerobee.nameserver.key_value_store import KeyValueStore
from aerobee.nameserver.key_values import Delete, KeyValue, Put
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.stored import Keys
from aerobee.nameserver.stored_access import QuotaKey, quota_key
from aerobee.runtime.errors import IllegalName, InvalidArgument, LimitReached

_SPREAD_TIMEOUT_S: Final = 2.0


class StoredQuotas:
    """The quotas of one cluster."""

    def __init__(self, etcd: KeyValueStore, keys: Keys, cache: RouteCache) -> None:
        self._etcd = etcd
        self._keys = keys
        self._cache = cache

    def listed(self) -> dict[Subject, Quota]:
        """The readable ones. Raises RegistryUnavailable."""
        found = {}
        for record in self._cache.table.access.records.quotas:
            try:
                subject, quota = decode_quota(record.value)
            except UnreadableRecord:
                continue
            found[subject] = quota
        return found

    async def change(self, subject: Subject, changes: Mapping[str, int | None]) -> Quota:
        """The quota with these fields set, or left to the default by None; a user's quota only if
        the user exists.

        Raises:
            InvalidArgument, LimitReached, RegistryUnavailable.
        """
        key = self._keys.quota(quota_key(subject))

        async def read() -> tuple[dict[str, int], KeyValue | None]:
            return await self._user(subject), await self._etcd.get(key)

        def decide(seen: tuple[dict[str, int], KeyValue | None]) -> Write[Quota]:
            user, entry = seen
            quota = _quota_of(entry).changed(changes)
            check_fields(subject, quota)
            if not quota.said():
                raise InvalidArgument(
                    f"nothing would be left of the quota of {subject}; name a limit, or delete it "
                    "with `aerobee quota delete`"
                )
            if entry is None:
                self._check_room()
            return Write(
                quota,
                {**user, key: revision_of(entry)},
                [Put(key, encode_quota(subject, quota))],
            )

        quota, revision = await changed(self._etcd, read, decide, what=_quota_name(subject))
        await self._cache.wait_version(revision, _SPREAD_TIMEOUT_S)
        return quota

    async def delete(self, subject: Subject) -> None:
        """Raises InvalidArgument: there is none; RegistryUnavailable."""
        key = self._keys.quota(quota_key(subject))

        def decide(entry: KeyValue | None) -> Write[None]:
            if entry is None:
                raise InvalidArgument(
                    f"{subject} has no quota of its own; see `aerobee quota list`"
                )
            return Write(None, {key: entry.revision}, [Delete(key)])

        read = partial(self._etcd.get, key)
        _, revision = await changed(self._etcd, read, decide, what=_quota_name(subject))
        await self._cache.wait_version(revision, _SPREAD_TIMEOUT_S)

    async def _user(self, subject: Subject) -> dict[str, int]:
        """What must still hold when the quota is written: a deleted user must not leave one
        behind."""
        if subject.kind != USER:
            return {}
        key = self._keys.user(subject.name)
        entry = await self._etcd.get(key)
        if entry is None:
            raise IllegalName(f"there is no user {subject.name!r}; see `aerobee user list`")
        return {key: entry.revision}

    def _check_room(self) -> None:
        count = sum(isinstance(key, QuotaKey) for key in self._cache.table.access.values)
        if count >= QUOTAS_MAX:
            raise LimitReached(f"there are {QUOTAS_MAX} quotas already; delete some")


def _quota_of(entry: KeyValue | None) -> Quota:
    """An unreadable one is replaced."""
    if entry is None:
        return UNLIMITED
    try:
        return decode_quota(entry.value)[1]
    except UnreadableRecord:
        return UNLIMITED


def _quota_name(subject: Subject) -> str:
    return f"the quota of {subject}"
