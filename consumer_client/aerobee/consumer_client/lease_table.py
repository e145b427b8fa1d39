"""What a group member may believe about its queue leases on one broker. PURE: time is passed in.

Owns: the requests and leases of one membership session, and the time until which they may be
trusted. The broker ends a session `session_timeout` after it received the last heartbeat; the
member counts from the moment it *sent* the last acknowledged one, and stops a safety margin
earlier. Whatever happens in between, the member has therefore stopped before the broker gives its
queues to another.

       sent        received by broker                     member stops   broker ends the session
        |--------------|----------------------------------------|---------|-----|
        |<------------- session_timeout - margin -------------->|               |
                       |<----------------- session_timeout ------------------->|

Invariants: a queue is held under one epoch; after the deadline nothing is held; `deadline_s` never
moves back within a session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

MARGIN_SHARE = 0.1
MARGIN_MS_MIN = 200
NEVER_S = float("-inf")


class QueueKey(NamedTuple):
    """A queue of the table's broker."""

    topic: str
    queue_id: int


class HeldQueue(NamedTuple):
    """A lease: its queue and epoch."""

    key: QueueKey
    epoch: int


def safety_margin_s(session_timeout_ms: int) -> float:
    """How long before the broker the member ends its session: a tenth, at least 200 ms."""
    return max(session_timeout_ms * MARGIN_SHARE, MARGIN_MS_MIN) / 1_000


class LeaseTable:
    """Requests, leases and the deadline of one member on one broker."""

    __slots__ = ("_deadline_s", "_held", "_next_sequence", "_sent_at_s", "_timeout_s", "_wanted")

    def __init__(self) -> None:
        self._deadline_s = NEVER_S
        self._timeout_s = 0.0
        self._held: dict[QueueKey, int] = {}
        self._wanted: set[QueueKey] = set()
        self._sent_at_s: dict[int, float] = {}
        self._next_sequence = 1

    def __repr__(self) -> str:
        return f"LeaseTable(held={len(self._held)}, wanted={len(self._wanted)})"

    # ------------------------------------------------------------------------------ the session

    @property
    def deadline_s(self) -> float:
        """From this monotonic time on no lease may be trusted; -inf before the first answer."""
        return self._deadline_s

    def is_trusted(self, now_s: float) -> bool:
        return now_s < self._deadline_s

    def on_joined(
        self, session_timeout_ms: int, confirmed: Iterable[HeldQueue], *, sent_s: float
    ) -> list[HeldQueue]:
        """The broker answered a Join that was sent at `sent_s`; returns the lost leases.

        A confirmed lease that this table does not hold (any more) is not resumed: a lost lease
        stays lost.
        """
        self._timeout_s = session_timeout_ms / 1_000 - safety_margin_s(session_timeout_ms)
        self._sent_at_s.clear()
        # A new session, perhaps a shorter one: the promises of the old one end here.
        self._deadline_s = NEVER_S
        self._renew(sent_s)
        kept = {(held.key, held.epoch) for held in confirmed}
        lost = [held for held in self.held() if (held.key, held.epoch) not in kept]
        for held in lost:
            del self._held[held.key]
        return lost

    def on_heartbeat_sent(self, now_s: float) -> int:
        """Returns the sequence number to send; call it before writing to the stream."""
        sequence = self._next_sequence
        self._next_sequence += 1
        self._sent_at_s[sequence] = now_s
        return sequence

    def on_heartbeat_ack(self, sequence: int) -> None:
        """The broker has seen this heartbeat, and thus everything before it."""
        sent_s = self._sent_at_s.get(sequence)
        if sent_s is None:
            return
        for earlier in [number for number in self._sent_at_s if number <= sequence]:
            del self._sent_at_s[earlier]
        self._renew(sent_s)

    def lose_all(self) -> list[HeldQueue]:
        """The session is over (the deadline has passed, or the broker does not know it): nothing is
        held any more. Returns what was held; the requests stay."""
        lost = self.held()
        self._held.clear()
        self._sent_at_s.clear()
        self._deadline_s = NEVER_S
        return lost

    def _renew(self, sent_s: float) -> None:
        self._deadline_s = max(self._deadline_s, sent_s + self._timeout_s)

    # ------------------------------------------------------------------------------ the queues

    def want(self, key: QueueKey) -> bool:
        """Request a queue; True if the broker must be asked now."""
        if key in self._wanted:
            return False
        self._wanted.add(key)
        return key not in self._held

    def is_wanted(self, key: QueueKey) -> bool:
        return key in self._wanted

    def unwant(self, key: QueueKey) -> int | None:
        """Withdraw the request for a queue. Returns the epoch to release: 0 withdraws a request
        that was not granted yet; None if there is nothing to tell the broker."""
        wanted = key in self._wanted
        self._wanted.discard(key)
        epoch = self._held.pop(key, None)
        if epoch is None and wanted:
            return 0
        return epoch

    def on_granted(self, key: QueueKey, epoch: int, now_s: float) -> bool:
        """A grant arrived. False: it is not wanted (any more) or comes too late to be trusted, and
        must be given back."""
        if key not in self._wanted or not self.is_trusted(now_s):
            return False
        self._held[key] = epoch
        return True

    def on_revoked(self, key: QueueKey, epoch: int) -> bool:
        """The broker took a lease away; True if it was the one held here. The request stays."""
        if self._held.get(key) != epoch:
            return False
        del self._held[key]
        return True

    def epoch_of(self, key: QueueKey) -> int | None:
        return self._held.get(key)

    def held(self) -> list[HeldQueue]:
        """Leases held now, sorted by queue."""
        return [HeldQueue(key, epoch) for key, epoch in sorted(self._held.items())]

    def wishes(self) -> list[QueueKey]:
        """Queues requested and not held, sorted: what a new stream must ask for."""
        return sorted(self._wanted - self._held.keys())

    def wanted(self) -> list[QueueKey]:
        return sorted(self._wanted)
