"""Secrets closed with a key that etcd does not have, and what nodes prove each other with it.

The cluster secret is in a file on each node. Of it come two keys for each purpose. A sealed text is
a nonce, the text under a keystream of HMAC-SHA256 over nonce and counter, and an HMAC-SHA256 of all
of it and of the user's name: a sealed secret that is moved to another user does not open. Who has
etcd alone has neither the secrets nor a way to make one that is taken; who has the file as well has
all of them, because the signature scheme needs the secrets themselves.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from typing import Final

from aerobee.runtime.errors import InvalidArgument

CLUSTER_SECRET_LENGTH_MIN: Final = 32
CLUSTER_SECRETS_MAX: Final = 2
NONCE_BYTES: Final = 16
_VERSION: Final = b"s1"
_TAG_BYTES: Final = 32
_HASH: Final = "sha256"


class ClusterSecrets:
    """One or two, the one to use first; all are accepted."""

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
        """One on each line of a file; empty lines and lines that begin with # do not count. Raises
        InvalidArgument."""
        lines = (line.strip() for line in text.splitlines())
        return cls([line.encode() for line in lines if line and not line.startswith("#")])

    def keys(self, purpose: bytes) -> tuple[bytes, ...]:
        """For one purpose, of each secret, the one to use first."""
        return tuple(hmac.digest(secret, b"aerobee " + purpose, _HASH) for secret in self._secrets)


def seal(secret: str, name: str, secrets: ClusterSecrets, nonce: bytes) -> str:
    """`nonce`: random, never used again."""
    assert len(nonce) == NONCE_BYTES, "a nonce has a fixed length"
    cipher_key = secrets.keys(b"seal")[0]
    tag_key = secrets.keys(b"seal tag")[0]
    body = _VERSION + nonce + _masked(secret.encode(), cipher_key, nonce)
    tag = hmac.digest(tag_key, name.encode() + b"\0" + body, _HASH)
    return base64.b64encode(body + tag).decode()


def unseal(sealed: str, name: str, secrets: ClusterSecrets) -> str | None:
    """The secret; None if it was sealed for another name, by another cluster secret, or changed."""
    try:
        data = base64.b64decode(sealed, validate=True)
    except ValueError:
        return None
    body, tag = data[:-_TAG_BYTES], data[-_TAG_BYTES:]
    if not body.startswith(_VERSION) or len(body) < len(_VERSION) + NONCE_BYTES:
        return None
    nonce = body[len(_VERSION) : len(_VERSION) + NONCE_BYTES]
    keys = zip(secrets.keys(b"seal"), secrets.keys(b"seal tag"), strict=True)
    for cipher_key, tag_key in keys:
        if hmac.compare_digest(hmac.digest(tag_key, name.encode() + b"\0" + body, _HASH), tag):
            return _masked(body[len(_VERSION) + NONCE_BYTES :], cipher_key, nonce).decode()
    return None


def _masked(data: bytes, key: bytes, nonce: bytes) -> bytes:
    stream = b"".join(
        hmac.digest(key, nonce + block.to_bytes(4, "big"), _HASH)
        for block in range(len(data) // _TAG_BYTES + 1)
    )
    return bytes(one ^ other for one, other in zip(data, stream, strict=False))
