"""What one user, address or consumer group uses at one node, and how much of its quota is left.

Pure: the caller passes in the time. A bucket holds one second's allowance; the buckets of topics
and groups created hold one hour's.
"""

from __future__ import annotations

from typing import Final

from aerobee.access.quota import UNLIMITED, Quota, Traffic
from aerobee.runtime.token_bucket import TokenBucket

HOUR_S: Final = 3_600

Rates = tuple[TokenBucket | None, TokenBucket | None]
"""For requests and for bytes; None: no limit."""


class Account:
    """The account of one subject."""

    __slots__ = (
        "_buckets",
        "connections",
        "logged_s",
        "quota",
        "rates",
        "streams",
        "subject",
        "subscriptions",
    )

    def __init__(self, subject: str, quota: Quota, now_s: float) -> None:
        self.subject = subject
        self.quota = UNLIMITED
        self.rates: dict[Traffic, Rates] = {}
        """Empty: nothing is limited."""
        self.connections: set[str] = set()
        self.streams = 0
        self.subscriptions = 0
        self.logged_s = float("-inf")
        self._buckets: dict[str, TokenBucket] = {}
        self.become(quota, now_s)

    def __repr__(self) -> str:
        return f"<Account {self.subject}>"

    @property
    def is_idle(self) -> bool:
        return not self.connections and not self.streams

    def become(self, quota: Quota, now_s: float) -> None:
        """Switch to another quota; limits that stay the same keep what is left of them."""
        before, self.quota = self.quota, quota
        limits = quota.said()
        kept = {
            name: bucket
            for name, bucket in self._buckets.items()
            if limits.get(name) == getattr(before, name)
        }
        self._buckets = kept
        self.rates = {}
        for traffic in Traffic:
            requests = self._bucket(traffic.requests, limits, 1, now_s)
            size = self._bucket(traffic.bytes, limits, 1, now_s)
            if requests is not None or size is not None:
                self.rates[traffic] = requests, size

    def create(self, field: str, now_s: float) -> float:
        """Count one more topic or group. Returns 0 if it may be created, else in how many seconds
        it may be."""
        bucket = self._bucket(field, self.quota.said(), HOUR_S, now_s)
        return 0.0 if bucket is None else bucket.take(now_s)

    def _bucket(
        self, field: str, limits: dict[str, int], period_s: int, now_s: float
    ) -> TokenBucket | None:
        limit = limits.get(field, 0)
        if limit == 0:
            return None
        bucket = self._buckets.get(field)
        if bucket is None:
            bucket = TokenBucket(per_s=limit / period_s, burst=limit, now_s=now_s)
            self._buckets[field] = bucket
        return bucket
