"""What a client says with each call to prove who makes it.

Secrets come from files or the environment, never from arguments, which others can see:

    AEROBEE_CREDENTIALS_FILE       a file with access_key = ... and secret_key = ...
    AEROBEE_ACCESS_KEY, AEROBEE_SECRET_KEY
    AEROBEE_CLUSTER_SECRET_FILE    an operator's: all rights, as long as the file is there

Files are read again when they change, so that a secret is exchanged without a restart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aerobee.runtime.clock import Clock, SystemClock
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.watched_file import WatchedFile

if TYPE_CHECKING:
    from aerobee.access.signature import Metadata

FILE_VARIABLE: Final = "AEROBEE_CREDENTIALS_FILE"
ACCESS_KEY_VARIABLE: Final = "AEROBEE_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "AEROBEE_SECRET_KEY"
CLUSTER_SECRET_VARIABLE: Final = "AEROBEE_CLUSTER_SECRET_FILE"


class Credentials(Protocol):
    def metadata(self, path: str) -> Metadata:
        """The metadata to send with a call of the method at `path`."""
        ...


class Anonymous:
    """Sends nothing."""

    def metadata(self, path: str) -> Metadata:
        return ()


class KeyPair(NamedTuple):
    """A user's access key and secret."""

    access_key: str
    secret_key: bytes

    def __repr__(self) -> str:
        return f"<KeyPair of {self.access_key}>"

    @classmethod
    def parse(cls, text: str) -> KeyPair:
        """From lines `access_key = ...` and `secret_key = ...`. Raises InvalidArgument."""
        found: dict[str, str] = {}
        for line in text.splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.lstrip().startswith("#"):
                found[name.strip()] = value.strip().strip('"')
        if not found.get("access_key") or not found.get("secret_key"):
            raise InvalidArgument(
                "credentials are two lines: access_key = ... and secret_key = ..."
            )
        return cls(found["access_key"], found["secret_key"].encode())


class UserCredentials:
    """Signs each call as a user."""

    def __init__(self, pair: KeyPair | WatchedFile[KeyPair], clock: Clock) -> None:
        # Most clients sign nothing, and start faster without it.
        from aerobee.access.signature import sign

        self._sign = sign
        self._pair = pair
        self._clock = clock
        self._made_of: tuple[KeyPair, int] | None = None
        self._metadata: Metadata = ()

    def metadata(self, path: str) -> Metadata:
        pair = self._pair if isinstance(self._pair, KeyPair) else self._pair.value()
        made_of = (pair, self._clock.now_ms() // 1_000)
        if made_of != self._made_of:
            # It signs the time in seconds and nothing else.
            self._made_of = made_of
            time = datetime.fromtimestamp(made_of[1], UTC).strftime("%Y%m%dT%H%M%SZ")
            self._metadata = self._sign(pair.access_key, pair.secret_key, time)
        return self._metadata


def user_credentials(access_key: str, secret_key: str) -> Credentials:
    return UserCredentials(KeyPair(access_key, secret_key.encode()), SystemClock())


def credentials_of_environment(environment: Mapping[str, str] = os.environ) -> Credentials:
    """Raises InvalidArgument: the environment names credentials that cannot be read."""
    clock = SystemClock()
    if path := environment.get(FILE_VARIABLE):
        return UserCredentials(WatchedFile(path, KeyPair.parse, clock.monotonic_s), clock)
    access_key = environment.get(ACCESS_KEY_VARIABLE, "")
    secret_key = environment.get(SECRET_KEY_VARIABLE, "")
    if bool(access_key) != bool(secret_key):
        raise InvalidArgument(
            f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} belong together: set both or neither"
        )
    if access_key:
        return user_credentials(access_key, secret_key)
    if path := environment.get(CLUSTER_SECRET_VARIABLE):
        import secrets

        from aerobee.access.nodes import OPERATOR, NodeName, NodeSigner
        from aerobee.access.sealing import ClusterSecrets

        file = WatchedFile(path, ClusterSecrets.parse, clock.monotonic_s)
        node = NodeName(OPERATOR, "command")
        return NodeSigner(node, file.value, clock.now_ms, secrets.randbits(64))
    return Anonymous()
