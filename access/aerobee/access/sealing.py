"""Secrets sealed with a key that etcd does not have, and the keys with which nodes prove themselves
to each other.

The cluster secret is in a file on each node. A key for each purpose is derived from it. A sealed
text is a nonce and the text under AES-256-GCM, bound to the user's name: a sealed secret that is
moved to another user does not open. With access to etcd alone, one has neither the secrets nor a
way to make a valid one; with the file as well, one has all of them, because the signature scheme
needs the secrets themselves.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aerobee.runtime.errors import InvalidArgument

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CLUSTER_SECRET_LENGTH_MIN: Final = 32
CLUSTER_SECRETS_MAX: Final = 2
NONCE_BYTES: Final = 12
_VERSION: Final = b"s1"
_TAG_BYTES: Final = 16
_HASH: Final = "sha256"


class ClusterSecrets:
    """One or two secrets. The first is used; all are accepted."""

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Sequence[bytes]) -> None:
        """Raises InvalidArgument."""
        if not 0 < len(secrets) <= CLUSTER_SECRETS_MAX:
            raise InvalidArgument(
                f"a file of the cluster secret has 1 to {CLUSTER_SECRETS_MAX} lines, not "
                f"{len(secrets)}"
            )
        if any(len(secret) < CLUSTER_SECRET_LENGTH_MIN for secret in secrets):
            raise InvalidArgument(
                f"a cluster secret has at least {CLUSTER_SECRET_LENGTH_MIN} characters; make one "
                "with: openssl rand -hex 32"
            )
        self._secrets = tuple(secrets)

    def __repr__(self) -> str:
        return f"<{len(self._secrets)} cluster secrets>"

    @classmethod
    def parse(cls, text: str) -> ClusterSecrets:
        """One secret per line; empty lines and lines that begin with # are skipped. Raises
        InvalidArgument."""
        lines = (line.strip() for line in text.splitlines())
        return cls([line.encode() for line in lines if line and not line.startswith("#")])

    def keys(self, purpose: bytes) -> tuple[bytes, ...]:
        """The key for one purpose from each secret, the one to use first."""
        return tuple(hmac.digest(secret, b"aerobee " + purpose, _HASH) for secret in self._secrets)


def seal(secret: str, name: str, secrets: ClusterSecrets, nonce: bytes) -> str:
    """`nonce`: random, never reused."""
    assert len(nonce) == NONCE_BYTES, "a nonce has a fixed length"
    key = secrets.keys(b"seal")[0]
    return base64.b64encode(
        _VERSION + nonce + _cipher(key).encrypt(nonce, secret.encode(), name.encode())
    ).decode()


def unseal(sealed: str, name: str, secrets: ClusterSecrets) -> str | None:
    """The secret; None if it was sealed for another name or by another cluster secret, or was
    changed."""
    from cryptography.exceptions import InvalidTag

    try:
        data = base64.b64decode(sealed, validate=True)
    except ValueError:
        return None
    nonce, closed = data[len(_VERSION) :][:NONCE_BYTES], data[len(_VERSION) + NONCE_BYTES :]
    if not data.startswith(_VERSION) or len(closed) < _TAG_BYTES:
        return None
    for key in secrets.keys(b"seal"):
        with suppress(InvalidTag):
            return _cipher(key).decrypt(nonce, closed, name.encode()).decode()
    return None


def _cipher(key: bytes) -> AESGCM:
    # Clients prove themselves with the same module but seal nothing.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
