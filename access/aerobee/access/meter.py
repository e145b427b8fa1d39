"""What the running call uses, charged to the quotas of its caller.

Owns: one context variable, which a server sets around each call of a user. Work that a node does
for itself has no meter. Usage is charged before the work is done or, if only the work shows the
amount, before the result is sent.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol

from aerobee.access.account import Account, Rates
from aerobee.access.quota import SUBSCRIPTIONS, Traffic
from aerobee.access.quotas import Quotas

PATIENCE_S: Final = 0.5
"""How long a request waits for its turn; one that would wait longer is refused."""
SEND_PATIENCE_S: Final = 5.0
"""The same for a frame of a stream: nothing else of the stream is read in the meantime."""
BYTES_UNLIMITED: Final = 1 << 62


class Answer(Protocol):
    """One message of an answer; protobuf messages fit."""

    def ByteSize(self) -> int: ...


class Meter:
    """The meter of one call."""

    __slots__ = ("_account", "_quotas", "_subscriptions", "follows")

    def __init__(self, quotas: Quotas, account: Account) -> None:
        self._quotas = quotas
        self._account = account
        self._subscriptions = 0
        self.follows = False
        """For a stream of reads: it waits for its turn as long as necessary, and each of its reads
        counts as a request."""

    def limits(self, group: str) -> bool:
        """Whether any rate is limited for the caller, or for this group."""
        return bool(self._account.rates) or group in self._quotas.groups

    def spend(
        self,
        traffic: Traffic,
        size: int,
        group: str = "",
        *,
        requests: int = 1,
        patience_s: float = float("inf"),
    ) -> float:
        """Charge it; returns how many seconds to wait before using it. A negative `size` is a
        refund.

        Raises:
            QuotaExceeded: the wait would be longer than `patience_s`; nothing was charged.
        """
        shares = self._shares(traffic, group)
        if not shares:
            return 0.0
        now_s, longest_s = self._quotas.now_s(), 0.0
        most: tuple[Account, str] | None = None
        for account, (of_requests, of_bytes) in shares:
            if of_requests is not None and requests:
                wait_s = of_requests.wait_s(now_s, requests)
                if wait_s > longest_s:
                    longest_s, most = wait_s, (account, traffic.requests)
            if of_bytes is not None:
                wait_s = of_bytes.wait_s(now_s, size)
                if wait_s > longest_s:
                    longest_s, most = wait_s, (account, traffic.bytes)
        if longest_s > patience_s and most is not None:
            raise self._quotas.refusal(*most, wait_s=longest_s)
        for _, (of_requests, of_bytes) in shares:
            if of_requests is not None and requests:
                of_requests.spend(now_s, requests)
            if of_bytes is not None:
                of_bytes.spend(now_s, size)
        if most is not None:
            self._quotas.delayed(*most, wait_s=longest_s)
        return longest_s

    def room(self, traffic: Traffic, group: str) -> int:
        """How many bytes to read at a time: one second's allowance.

        Raises:
            QuotaExceeded: not even the smallest read is allowed now, and the caller does not wait.
        """
        found = BYTES_UNLIMITED
        for account, (_, of_bytes) in self._shares(traffic, group):
            if of_bytes is None:
                continue
            found = min(found, int(of_bytes.burst))
            if not self.follows:
                wait_s = of_bytes.wait_s(self._quotas.now_s())
                if wait_s > PATIENCE_S:
                    raise self._quotas.refusal(account, traffic.bytes, wait_s=wait_s)
        return found

    async def pause(self, wait_s: float) -> None:
        """Wait until it is time, or the quotas have changed."""
        if wait_s > 0:
            await self._quotas.pauses.pause(wait_s)

    def create(self, field: str) -> None:
        """A topic or a group is about to be created. Raises QuotaExceeded."""
        wait_s = self._account.create(field, self._quotas.now_s())
        if wait_s > 0:
            raise self._quotas.refusal(self._account, field, wait_s=wait_s)

    def hold_subscriptions(self, count: int) -> None:
        """Set the number of subscriptions of the call. Raises QuotaExceeded and keeps the old
        number."""
        account, more = self._account, count - self._subscriptions
        limit = account.quota.subscriptions or 0
        if more > 0 and limit and account.subscriptions + more > limit:
            raise self._quotas.refusal(account, SUBSCRIPTIONS)
        account.subscriptions += more
        self._subscriptions = count

    def is_of(self, other: Meter) -> bool:
        """Whether both charge the same caller."""
        return self._account is other._account

    def began(self) -> None:
        """The call is going to last."""
        self._account.streams += 1

    def ended(self) -> None:
        self._account.streams -= 1
        self._account.subscriptions -= self._subscriptions
        self._subscriptions = 0

    def _shares(self, traffic: Traffic, group: str) -> list[tuple[Account, Rates]]:
        """The accounts that limit this: the caller's, the group's, or both."""
        account, shares = self._account, []
        rates = account.rates.get(traffic)
        if rates is not None:
            shares.append((account, rates))
        of_group = self._quotas.groups.get(group)
        if of_group is not None and (rates := of_group.rates.get(traffic)) is not None:
            shares.append((of_group, rates))
        return shares


CURRENT_METER: ContextVar[Meter | None] = ContextVar("aerobee_meter", default=None)


def reading_meter(group: str) -> Meter | None:
    """The meter of a call whose reads may be limited; otherwise None."""
    meter = CURRENT_METER.get()
    return meter if meter is not None and meter.limits(group) else None


async def begin_poll(group: str) -> None:
    """Start a request for messages that may wait for them. Raises QuotaExceeded."""
    meter = reading_meter(group)
    if meter is not None:
        await meter.pause(meter.spend(Traffic.READ, 0, group, patience_s=PATIENCE_S))


def passed_on(group: str, answer: Answer) -> None:
    """Data that another node has read is sent to the caller."""
    meter = reading_meter(group)
    if meter is not None:
        meter.spend(Traffic.READ, answer.ByteSize(), group, requests=0)


def sending_meter() -> Meter | None:
    """The meter of a call whose sends may be limited; otherwise None."""
    return reading_meter("")


def about_to_create(field: str) -> None:
    """One more is about to be created; `TOPICS_CREATED` or `GROUPS_CREATED`. Raises
    QuotaExceeded."""
    meter = CURRENT_METER.get()
    if meter is not None:
        meter.create(field)


def hold_subscriptions(count: int) -> None:
    """The running stream has this many subscriptions from now on. Raises QuotaExceeded."""
    meter = CURRENT_METER.get()
    if meter is not None:
        meter.hold_subscriptions(count)
