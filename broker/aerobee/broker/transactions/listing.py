"""Open transactions, page by page, of any replica.

Costs a bounded part of a turn for each page: only so many transactions are looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from aerobee.broker.sending.guard import Guard
from aerobee.broker.transactions.pending import PendingHalves, TransactionName
from aerobee.runtime.errors import InvalidArgument, ReplicaBehind
from aerobee.store_format.transaction_records import HalfMessage

LIST_MAX: Final = 1_000
LOOKED_MAX: Final = 5_000


class TransactionPage(NamedTuple):
    """`after`: for the next page; 0: there is none."""

    transactions: list[HalfMessage]
    after: int


class TransactionList:
    """On the loop."""

    def __init__(
        self, pending: PendingHalves, guard: Guard, *, has_all: Callable[[], bool]
    ) -> None:
        """`has_all`: whether everything that is confirmed has been read."""
        self._pending = pending
        self._guard = guard
        self._has_all = has_all
        self._has_caught_up = False

    def page(
        self,
        topic: str = "",
        transaction_id: str = "",
        *,
        begin_ms: int = 0,
        end_ms: int = 0,
        after: int = 0,
        limit: int = 100,
    ) -> TransactionPage:
        """Transactions of a topic (empty: of any) with an id (empty: with any), begun in
        [begin_ms, end_ms) (0: without an end), in the order of their half messages. A page has at
        most `limit` of them and LIST_MAX, and may have fewer though others follow.

        Raises:
            InvalidArgument: the times are the wrong way round, or `after` is not from a page.
            ReplicaBehind: this replica has not read them since its start.
            ShuttingDown, StoreFailed.
        """
        self._guard.check_available()
        if after < 0 or begin_ms < 0 or end_ms < 0:
            raise InvalidArgument("a time and a place in a list of transactions are not negative")
        if end_ms and begin_ms >= end_ms:
            raise InvalidArgument(f"the begin {begin_ms} is not before the end {end_ms}: swap them")
        self._check_known()
        if topic and transaction_id:
            looked, is_last = self._pending.of(TransactionName(topic, transaction_id))[-1:], True
        else:
            # A place is the offset after the last one that was looked at.
            looked = self._pending.some_from(after, LOOKED_MAX)
            is_last = len(looked) < LOOKED_MAX
        found: list[HalfMessage] = []
        limit = min(limit, LIST_MAX)
        for half in looked:
            if len(found) == limit:
                return TransactionPage(found, half.offset)
            if (
                (not topic or half.topic == topic)
                and (not transaction_id or half.transaction_id == transaction_id)
                and begin_ms <= half.born_ms
                and (not end_ms or half.born_ms < end_ms)
            ):
                found.append(half)
        return TransactionPage(found, 0 if is_last else looked[-1].offset + 1)

    def _check_known(self) -> None:
        if not self._has_caught_up:
            self._has_caught_up = self._has_all()
        if not self._has_caught_up:
            raise ReplicaBehind(
                "this replica is still reading the transactions that are open; ask again in a "
                "moment"
            )
