"""A user as the cluster keeps it, and the bounds of what is kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aerobee.runtime.errors import InvalidArgument

USERS_MAX: Final = 1_000
POLICIES_MAX: Final = 5_000
"""Of all users: each node arranges all of them when it starts, which takes about 0.1 s."""
POLICIES_PER_USER_MAX: Final = 100
"""A user and its policies are written in one transaction, and etcd allows 128 operations."""
SECRETS_MAX: Final = 2
"""The current one and the previous one."""
PEERS_MAX: Final = 8
PEER_LENGTH_MAX: Final = 256
SECRET_LENGTHS: Final = range(16, 129)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


@dataclass(frozen=True, slots=True)
class User:
    """Who may sign calls; the name is the access key."""

    name: str
    is_super: bool = False
    """No policies are checked for it."""
    is_enabled: bool = True
    sealed: tuple[str, ...] = ()
    """Its secrets, newest first, sealed by `aerobee.access.sealing`."""
    peers: tuple[str, ...] = ()
    """Names in client certificates that prove its identity without a signature."""


def check_user_name(name: str) -> None:
    """Raises InvalidArgument."""
    if _NAME.fullmatch(name) is None:
        raise InvalidArgument(
            f"{name[:64]!r} cannot be the name of a user: it has 1 to 64 letters, digits and _.@-, "
            "and begins with a letter or a digit"
        )


def check_peers(peers: tuple[str, ...]) -> None:
    """Raises InvalidArgument."""
    if len(peers) > PEERS_MAX:
        raise InvalidArgument(f"a user has at most {PEERS_MAX} certificate names")
    for peer in peers:
        if not peer or len(peer) > PEER_LENGTH_MAX or not peer.isprintable():
            raise InvalidArgument(
                f"a certificate name has 1 to {PEER_LENGTH_MAX} printable characters"
            )


def check_secret(secret: str) -> None:
    """Raises InvalidArgument, whose text does not contain the secret."""
    if len(secret) not in SECRET_LENGTHS or not secret.isascii() or not secret.isprintable():
        raise InvalidArgument(
            f"a secret has {SECRET_LENGTHS.start} to {SECRET_LENGTHS.stop - 1} printable ASCII "
            "characters; leave it out and one is made"
        )
