"""The signature of the official clients, `MQv2-HMAC-SHA1`, which our clients send too.

    x-mq-date-time: 20240101T000000Z
    authorization: MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=9D05...

It signs only the text of the time, so it proves no more than that its maker knew the secret once:
anyone who sees one on the network can use it until the secret is changed. Only TLS prevents that. A
server must know the secret itself, not a hash of it.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aerobee.runtime.errors import Unauthenticated

AUTHORIZATION_KEY: Final = "authorization"
DATE_TIME_KEY: Final = "x-mq-date-time"
ALGORITHM: Final = "MQv2-HMAC-SHA1"
_LENGTH_MAX: Final = 1_024

Metadata = tuple[tuple[str, str], ...]


class Signed(NamedTuple):
    """What a call claims."""

    access_key: str
    content: bytes
    """What is signed: of a call's metadata, the text of its time."""
    digest: bytes

    def is_by(self, secrets: Iterable[bytes]) -> bool:
        """Whether one of these secrets made it."""
        # compare_digest takes the same time for a wrong digest as for the right one.
        return any(
            hmac.compare_digest(hmac.digest(secret, self.content, "sha1"), self.digest)
            for secret in secrets
        )

    def without_content(self, secrets: Iterable[bytes]) -> ByOneOf:
        """The same proof for as long as one of these secrets is valid, for contents that are too
        large to keep."""
        return ByOneOf(tuple(secret for secret in secrets if self.is_by((secret,))))


@dataclass(frozen=True, slots=True)
class ByOneOf:
    """A signature that was found valid."""

    _made_by: tuple[bytes, ...] = field(repr=False)

    def is_by(self, secrets: Iterable[bytes]) -> bool:
        """Whether a secret that made it is still one of these."""
        return any(
            hmac.compare_digest(secret, made_by) for secret in secrets for made_by in self._made_by
        )


def sign(access_key: str, secret: bytes, date_time: str) -> Metadata:
    """The metadata of a call."""
    digest = hmac.digest(secret, date_time.encode(), "sha1").hex()
    return (
        (DATE_TIME_KEY, date_time),
        (
            AUTHORIZATION_KEY,
            f"{ALGORITHM} Credential={access_key}, SignedHeaders={DATE_TIME_KEY}, "
            f"Signature={digest}",
        ),
    )


def read_signature(metadata: Mapping[str, str | bytes]) -> Signed | None:
    """What a call claims; None if it has no `authorization`.

    Raises:
        Unauthenticated: its `authorization` cannot be read.
    """
    header = metadata.get(AUTHORIZATION_KEY)
    if header is None:
        return None
    date_time = metadata.get(DATE_TIME_KEY)
    if not isinstance(header, str) or len(header) > _LENGTH_MAX:
        raise _unreadable("it is too long or not text")
    if not isinstance(date_time, str) or not date_time or len(date_time) > _LENGTH_MAX:
        raise _unreadable(f"the call has no {DATE_TIME_KEY}")
    algorithm, _, rest = header.partition(" ")
    if algorithm != ALGORITHM:
        raise _unreadable(f"it does not begin with {ALGORITHM}")
    fields: dict[str, str] = {}
    for part in rest.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise _unreadable("a part of it is not NAME=VALUE")
        fields[name] = value
    access_key = fields.get("Credential", "").partition("/")[0]
    if not access_key:
        raise _unreadable("it has no Credential")
    try:
        digest = bytes.fromhex(fields.get("Signature", ""))
    except ValueError:
        raise _unreadable("its Signature is not hexadecimal") from None
    return Signed(access_key, date_time.encode("utf-8", "surrogateescape"), digest)


def _unreadable(why: str) -> Unauthenticated:
    return Unauthenticated(f"the call's signature cannot be read: {why}; see docs/access.md")
