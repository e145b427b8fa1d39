"""The quotas of one node: what was set, and the accounts of its callers.

Owns: the accounts, the connections of each, and how often a quota was exceeded. Each node counts
for itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

from aerobee.access.account import Account
from aerobee.access.book import AccessBook
from aerobee.access.quota import (
    BUILT_IN,
    CONNECTIONS,
    DEFAULT,
    GROUP,
    QUOTA_FIELDS,
    RATES,
    SUBSCRIPTIONS,
    UNLIMITED,
    USER,
    Quota,
    Subject,
    decode_quota,
)
from aerobee.access.records import UnreadableRecord
from aerobee.access.table import Record
from aerobee.runtime.errors import QuotaExceeded
from aerobee.runtime.log import log_event
from aerobee.runtime.metrics.families import Family, counter
from aerobee.runtime.waiting import Pauses

log = logging.getLogger(__name__)

ADDRESS: Final = "address"
ACCOUNTS_MAX: Final = 10_000
"""Beyond this number, accounts without a connection or a stream are forgotten."""
LOG_INTERVAL_S: Final = 10.0
"""For each account."""
COUNT_PAUSE_MS: Final = 1_000
"""When to retry if a connection or a subscription has to end first."""
DELAYED: Final = "delayed"
REFUSED: Final = "refused"


class Quotas:
    """All quotas of one node. On the loop."""

    def __init__(self, book: AccessBook, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.groups: dict[str, Account] = {}
        """Groups that have a quota."""
        self.met = {(field, how): 0 for field in QUOTA_FIELDS for how in (DELAYED, REFUSED)}
        self._book = book
        self._accounts: dict[tuple[str, str], Account] = {}
        self._sweep_at = ACCOUNTS_MAX
        self._connected: dict[str, list[Account]] = {}
        """By the peer's address and port."""
        self._records: tuple[Record, ...] = ()
        self._of: dict[Subject, Quota] = {}
        self._default = BUILT_IN
        self.pauses = Pauses()
        """Callers waiting for their turn: a change of quotas wakes them."""
        book.on_change(self._hear)

    def __repr__(self) -> str:
        return f"Quotas(accounts={len(self._accounts)}, connections={len(self._connected)})"

    # ------------------------------------------------------------------------------- who calls

    def of_user(self, name: str) -> Account:
        return self._accounts.get((USER, name)) or self._opened(USER, name)

    def of_address(self, address: str) -> Account:
        """The shared account of all callers from this address whose identity is not proved."""
        return self._accounts.get((ADDRESS, address)) or self._opened(ADDRESS, address)

    def of_peer(self, peer: str) -> Account | None:
        """The account of the one caller that has this connection; None: unknown, or shared."""
        accounts = self._connected.get(peer)
        return accounts[0] if accounts is not None and len(accounts) == 1 else None

    def connect(self, account: Account, peer: str) -> None:
        """Count a connection of the caller. Raises QuotaExceeded: it has too many."""
        if peer in account.connections:
            return
        limit = account.quota.connections or 0
        if limit and len(account.connections) >= limit:
            raise self.refusal(account, CONNECTIONS)
        account.connections.add(peer)
        self._connected.setdefault(peer, []).append(account)

    def disconnected(self, peer: str) -> None:
        for account in self._connected.pop(peer, ()):
            account.connections.discard(peer)

    def _opened(self, kind: str, name: str) -> Account:
        if len(self._accounts) >= self._sweep_at:
            self._accounts = {
                key: account for key, account in self._accounts.items() if not account.is_idle
            }
            self._sweep_at = max(ACCOUNTS_MAX, 2 * len(self._accounts))
        account = Account(f"{kind} {name}", self._quota(kind, name), self.now_s())
        self._accounts[kind, name] = account
        return account

    # ---------------------------------------------------------------------------- what was set

    def _hear(self) -> None:
        """Quotas, or the set of super users, may have changed."""
        has_news = self._records != self._book.quotas
        if has_news:
            self._records = self._book.quotas
            self._of = _read(self._records)
            self._default = self._of.get(Subject(DEFAULT), UNLIMITED).or_else(BUILT_IN)
        now_s = self.now_s()
        for (kind, name), account in self._accounts.items():
            quota = self._quota(kind, name)
            if quota != account.quota:
                account.become(quota, now_s)
        groups = {
            subject.name: quota for subject, quota in self._of.items() if subject.kind == GROUP
        }
        self.groups = {name: self._group(name, quota, now_s) for name, quota in groups.items()}
        if has_news:
            self.pauses.end_all()

    def _group(self, name: str, quota: Quota, now_s: float) -> Account:
        account = self.groups.get(name)
        if account is None:
            return Account(f"group {name}", quota, now_s)
        if quota != account.quota:
            account.become(quota, now_s)
        return account

    def _quota(self, kind: str, name: str) -> Quota:
        """The quota of a user or an address. The defaults do not apply to super users, who
        must be able to correct them."""
        if kind == ADDRESS:
            return self._default
        own = self._of.get(Subject(USER, name))
        known = self._book.table.users.get(name)
        if known is not None and known.user.is_super:
            return own or UNLIMITED
        return self._default if own is None else own.or_else(self._default)

    # -------------------------------------------------------------------------- what was met

    def refusal(
        self, account: Account, field: str, *, wait_s: float | None = None
    ) -> QuotaExceeded:
        """The error to raise, counted and logged. Without `wait_s`, the time of the next chance is
        unknown."""
        wait_ms = COUNT_PAUSE_MS if wait_s is None else math.ceil(wait_s * 1_000)
        self._note(account, field, REFUSED, wait_ms)
        return QuotaExceeded(
            f"{account.subject} may have {_limit_text(account, field)} (quota {field}): try again "
            f"in {wait_ms} ms, or ask for a higher quota",
            retry_after_ms=wait_ms,
        )

    def delayed(self, account: Account, field: str, *, wait_s: float) -> None:
        self._note(account, field, DELAYED, math.ceil(wait_s * 1_000))

    def _note(self, account: Account, field: str, how: str, wait_ms: int) -> None:
        self.met[field, how] += 1
        now_s = self.now_s()
        if now_s - account.logged_s < LOG_INTERVAL_S:
            return
        account.logged_s = now_s
        log_event(
            log,
            "a quota was met",
            level=logging.WARNING,
            subject=account.subject,
            quota=field,
            limit=getattr(account.quota, field),
            how=how,
            wait_ms=wait_ms,
        )

    def family(self) -> Family:
        """All quotas, including those never exceeded."""
        family = counter(
            "aerobee_quota_met_total",
            "Requests, frames and reads that a quota delayed or refused.",
            "quota",
            "how",
        )
        for (field, how), count in self.met.items():
            family.add(count, field, how)
        return family


def _limit_text(account: Account, field: str) -> str:
    limit, words = getattr(account.quota, field), field.replace("_", " ")
    if field in RATES:
        return f"{limit} {words} a second"
    return (
        f"{limit} {words}" if field in (CONNECTIONS, SUBSCRIPTIONS) else f"{limit} {words} an hour"
    )


def _read(records: tuple[Record, ...]) -> dict[Subject, Quota]:
    found: dict[Subject, Quota] = {}
    unreadable: list[str] = []
    for record in records:
        try:
            subject, quota = decode_quota(record.value)
        except UnreadableRecord:
            unreadable.append(record.user)
        else:
            found[subject] = quota
    if unreadable:
        log_event(
            log,
            "quotas cannot be read; the defaults hold",
            level=logging.ERROR,
            subjects=",".join(unreadable[:10]),
        )
    return found
