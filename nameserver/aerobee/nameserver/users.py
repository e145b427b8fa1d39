"""Creates, changes and deletes users and policies, by compare-and-swap in etcd.

Owns: the limits on what is kept. A secret goes to etcd sealed, and to the caller once. Each answer
comes after this nameserver has seen the change.
"""

from __future__ import annotations

import dataclasses
import secrets as secret_source
from collections.abc import Callable
from functools import partial
from typing import Final

from aerobee.access.book import AccessBook
from aerobee.access.policies import Policy
from aerobee.access.quota import USER, Subject
from aerobee.access.records import (
    UnreadableRecord,
    decode_user,
    encode_policy,
    encode_user,
    policy_id,
)
from aerobee.access.sealing import NONCE_BYTES, ClusterSecrets, seal, unseal
from aerobee.access.users import (
    POLICIES_MAX,
    POLICIES_PER_USER_MAX,
    SECRETS_MAX,
    USERS_MAX,
    User,
    check_peers,
    check_secret,
    check_user_name,
)
from aerobee.nameserver.compare_and_swap import Write, changed
from aerobee.nameserver.key_value_store import KeyValueStore
from aerobee.nameserver.key_values import Delete, KeyValue, Put
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.stored import Keys
from aerobee.nameserver.stored_access import PolicyKey, StoredAccess, UserKey, quota_key
from aerobee.runtime.errors import IllegalName, InvalidArgument, LimitReached

_SPREAD_TIMEOUT_S: Final = 2.0
_SECRET_BYTES: Final = 32


class Users:
    """The users of one cluster."""

    def __init__(
        self, etcd: KeyValueStore, keys: Keys, cache: RouteCache, book: AccessBook
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._cache = cache
        self._book = book

    @property
    def _stored(self) -> StoredAccess:
        return self._cache.table.access

    def listed(self) -> list[User]:
        """The users whose records can be read, by name."""
        self._cache.table  # noqa: B018  raises RegistryUnavailable
        return [known.user for _, known in sorted(self._book.table.users.items())]

    async def create(
        self, name: str, *, is_super: bool, peers: tuple[str, ...], secret: str
    ) -> tuple[User, str]:
        """The user and its secret, which is generated if it is empty.

        Raises InvalidArgument, LimitReached, RegistryUnavailable.
        """
        check_user_name(name)
        self._check_peers(name, peers)
        secret = _given_or_made(secret)
        if sum(isinstance(key, UserKey) for key in self._stored.values) >= USERS_MAX:
            raise LimitReached(f"there are {USERS_MAX} users already; delete some")
        user = User(name, is_super=is_super, sealed=(self._sealed(secret, name),), peers=peers)
        done = await self._etcd.transaction(
            {self._keys.user(name): 0}, [Put(self._keys.user(name), encode_user(user))]
        )
        if not done.succeeded:
            raise IllegalName(
                f"user {name!r} already exists; give it a new secret with `aerobee user rotate`, "
                "or choose another name"
            )
        await self._shown(done.revision)
        return user, secret

    async def update(
        self,
        name: str,
        *,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
        peers: tuple[str, ...] | None = None,
        forget_former_secret: bool = False,
    ) -> User:
        """Change what is given and return the user. Raises InvalidArgument, RegistryUnavailable."""
        if peers is not None:
            self._check_peers(name, peers)

        def updated(user: User) -> User:
            return dataclasses.replace(
                user,
                is_super=user.is_super if is_super is None else is_super,
                is_enabled=user.is_enabled if is_enabled is None else is_enabled,
                peers=user.peers if peers is None else peers,
                sealed=user.sealed[:1] if forget_former_secret else user.sealed,
            )

        return await self._change(name, updated)

    async def rotate(self, name: str, secret: str) -> tuple[User, str]:
        """A new secret beside the current one, generated if it is empty; the previous one is no
        longer valid. Raises as `update`."""
        secret = _given_or_made(secret)
        sealed = self._sealed(secret, name)

        def rotated(user: User) -> User:
            return dataclasses.replace(user, sealed=(sealed, *user.sealed)[:SECRETS_MAX])

        return await self._change(name, rotated), secret

    async def delete(self, name: str) -> None:
        """Delete the user, its policies and its quota. Raises as `update`."""

        async def read() -> KeyValue:
            entry = await self._read(name)
            # A policy that we have not seen yet would apply to the next user of this name.
            await self._shown(entry.revision)
            return entry

        def decide(entry: KeyValue) -> Write[None]:
            policies = [self._keys.policy(key) for key in self._stored.policies_of(name)]
            quota = self._keys.quota(quota_key(Subject(USER, name)))
            gone = [Delete(key) for key in (entry.key, quota, *policies)]
            return Write(None, {entry.key: entry.revision}, gone)

        _, revision = await changed(self._etcd, read, decide, what=f"user {name!r}")
        await self._shown(revision)

    async def put_policy(self, policy: Policy) -> None:
        """Add it, or replace the one with the same user, resource and kind. Raises as `update`;
        LimitReached."""
        key = PolicyKey(policy.user, policy_id(policy))

        def check(stored: StoredAccess) -> None:
            if key in stored.values:
                return
            if len(stored.policies_of(policy.user)) >= POLICIES_PER_USER_MAX:
                raise LimitReached(
                    f"user {policy.user!r} has {POLICIES_PER_USER_MAX} policies already; use "
                    "patterns, or remove some"
                )
            if sum(isinstance(one, PolicyKey) for one in stored.values) >= POLICIES_MAX:
                raise LimitReached(f"there are {POLICIES_MAX} policies already; remove some")

        def decide(entry: KeyValue) -> Write[None]:
            check(self._stored)
            # Writing the user as well forces a retry if the user is deleted, or another policy
            # added, at the same time.
            return Write(
                None,
                {entry.key: entry.revision},
                [Put(self._keys.policy(key), encode_policy(policy)), Put(entry.key, entry.value)],
            )

        read = partial(self._read, policy.user)
        _, revision = await changed(self._etcd, read, decide, what=f"user {policy.user!r}")
        await self._shown(revision)

    async def remove_policy(self, policy: Policy) -> None:
        """Remove the policy with the same user, resource and kind. Raises as `update`."""
        key = self._keys.policy(PolicyKey(policy.user, policy_id(policy)))

        def decide(entry: KeyValue | None) -> Write[None]:
            if entry is None:
                raise IllegalName(
                    f"user {policy.user!r} has no such policy for {policy.pattern}; see "
                    "`aerobee acl list`"
                )
            return Write(None, {key: entry.revision}, [Delete(key)])

        read = partial(self._etcd.get, key)
        _, revision = await changed(self._etcd, read, decide, what=f"user {policy.user!r}")
        await self._shown(revision)

    async def _change(self, name: str, change: Callable[[User], User]) -> User:
        def decide(entry: KeyValue) -> Write[User]:
            try:
                user = self._resealed(change(decode_user(entry.value)))
            except UnreadableRecord as error:
                raise InvalidArgument(
                    f"user {name!r} is damaged in etcd ({error}); delete it and create it again"
                ) from None
            return Write(user, {entry.key: entry.revision}, [Put(entry.key, encode_user(user))])

        read = partial(self._read, name)
        user, revision = await changed(self._etcd, read, decide, what=f"user {name!r}")
        await self._shown(revision)
        return user

    async def _read(self, name: str) -> KeyValue:
        check_user_name(name)
        entry = await self._etcd.get(self._keys.user(name))
        if entry is None:
            raise IllegalName(f"there is no user {name!r}; see `aerobee user list`")
        return entry

    async def _shown(self, revision: int) -> None:
        await self._cache.wait_version(revision, _SPREAD_TIMEOUT_S)

    def _check_peers(self, name: str, peers: tuple[str, ...]) -> None:
        check_peers(peers)
        for peer in peers:
            owner = self._book.table.by_peer.get(peer)
            if owner is not None and owner.user.name != name:
                raise InvalidArgument(
                    f"certificate name {peer!r} already belongs to user {owner.user.name!r}; "
                    "choose another one, or remove it from that user"
                )

    def _resealed(self, user: User) -> User:
        """Sealed with the cluster secret to use now, so that the other need not be kept."""
        cluster = self._book.secrets
        if cluster is None:
            return user
        opened = [(one, unseal(one, user.name, cluster)) for one in user.sealed]
        sealed = (
            one if secret is None else self._sealed(secret, user.name) for one, secret in opened
        )
        return dataclasses.replace(user, sealed=tuple(sealed))

    def _sealed(self, secret: str, name: str) -> str:
        cluster: ClusterSecrets | None = self._book.secrets
        if cluster is None:
            raise InvalidArgument(
                "this nameserver has no cluster secret to seal the user's secret with; set "
                "access.cluster_secret_file on all nodes"
            )
        return seal(secret, name, cluster, secret_source.token_bytes(NONCE_BYTES))


def _given_or_made(secret: str) -> str:
    if not secret:
        return secret_source.token_urlsafe(_SECRET_BYTES)
    check_secret(secret)
    return secret
