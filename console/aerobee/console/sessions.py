"""Who is signed in, and which forms are ours.

A browser holds one random token in a cookie. A signed-in session is kept here under the token's
hash. The token of a form is a keyed hash of the cookie's, so a page of another site can neither
read nor guess it, and nothing is kept for visitors that have not signed in.

Pure: the caller passes the monotonic time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from aerobee.client_core.admin_client import AdminClient
from aerobee.console.clients import OpenClient
from aerobee.runtime.token_bucket import TokenBucket

SESSIONS_MAX: Final = 1_000
IDLE_S: Final = 30 * 60
LIFE_S: Final = 12 * 3_600
TOKEN_BYTES: Final = 32

SIGN_INS_PER_S: Final = 0.2
SIGN_INS_BURST: Final = 5
"""Of one access key, right or wrong."""
ALL_SIGN_INS_PER_S: Final = 5.0
ALL_SIGN_INS_BURST: Final = 50
KEYS_COUNTED_MAX: Final = 10_000


@dataclass(slots=True)
class Session:
    """One user in one browser."""

    user: str
    client: OpenClient
    began_s: float
    used_s: float

    @property
    def admin(self) -> AdminClient:
        return self.client.admin

    def is_over(self, now_s: float) -> bool:
        return now_s - self.used_s >= IDLE_S or now_s - self.began_s >= LIFE_S


class Sessions:
    """All that are signed in."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(TOKEN_BYTES)
        self._by_hash: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._by_hash)

    def form_token(self, token: str) -> str:
        """What a form must carry that is sent with this cookie."""
        return hmac.new(self._key, token.encode(), "sha256").hexdigest()

    def is_form_token(self, token: str, given: str) -> bool:
        return bool(token) and hmac.compare_digest(
            self.form_token(token).encode(), given.encode("utf-8", "replace")
        )

    def begin(self, user: str, client: OpenClient, now_s: float) -> str:
        """A new session; returns its token. The one unused for longest makes room."""
        self.expire(now_s)
        while len(self._by_hash) >= SESSIONS_MAX:
            oldest = min(self._by_hash, key=lambda each: self._by_hash[each].used_s)
            self._by_hash.pop(oldest).client.close()
        token = new_token()
        self._by_hash[_hash(token)] = Session(user, client, now_s, now_s)
        return token

    def find(self, token: str, now_s: float) -> Session | None:
        """The session of a cookie, which counts as used."""
        session = self._by_hash.get(_hash(token)) if token else None
        if session is None:
            return None
        if session.is_over(now_s):
            self.end(token)
            return None
        session.used_s = now_s
        return session

    def holds(self, token: str, session: Session, now_s: float) -> bool:
        """Whether the cookie's session is still this one; does not count as use."""
        return self._by_hash.get(_hash(token)) is session and not session.is_over(now_s)

    def end(self, token: str) -> None:
        session = self._by_hash.pop(_hash(token), None)
        if session is not None:
            session.client.close()

    def expire(self, now_s: float) -> None:
        for key in [key for key, each in self._by_hash.items() if each.is_over(now_s)]:
            self._by_hash.pop(key).client.close()


class SignInLimit:
    """How often somebody may try to sign in."""

    def __init__(self, now_s: float) -> None:
        self._all = TokenBucket(per_s=ALL_SIGN_INS_PER_S, burst=ALL_SIGN_INS_BURST, now_s=now_s)
        self._by_key: dict[str, TokenBucket] = {}

    def take(self, access_key: str, now_s: float) -> float:
        """0: it may be tried now; else in how many seconds."""
        bucket = self._by_key.get(access_key)
        if bucket is None:
            if len(self._by_key) >= KEYS_COUNTED_MAX:
                self._by_key.clear()
            bucket = TokenBucket(per_s=SIGN_INS_PER_S, burst=SIGN_INS_BURST, now_s=now_s)
            self._by_key[access_key] = bucket
        return bucket.take(now_s) or self._all.take(now_s)


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
