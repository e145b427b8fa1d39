"""Open and set-aside transactions as operators see them: page by page, on any replica."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from aerobee.broker.sending.guard import Guard
from aerobee.broker.transactions.pending import PendingHalves, name_of
from aerobee.runtime.errors import InvalidArgument, ReplicaBehind
from aerobee.store.format.transaction_records import HalfMessage

PAGE_MAX: Final = 1_000
LOOKS_MAX: Final = 2_000
"""Records that one page examines; it may end before it is full."""


class Wanted(NamedTuple):
    """Which transactions to list; empty strings: any."""

    topic: str = ""
    transaction_id: str = ""
    begin_ms: int = 0
    end_ms: int = 0
    """Begun in [begin_ms, end_ms) by their producers' clocks; 0: no end."""

    def check(self) -> None:
        """Raises InvalidArgument: the begin time is after the end time."""
        if self.begin_ms < 0 or self.end_ms < 0:
            raise InvalidArgument("times must be Unix milliseconds, 0 or more")
        if self.end_ms and self.begin_ms >= self.end_ms:
            raise InvalidArgument(
                f"the start {self.begin_ms} is not before the end {self.end_ms}: swap them"
            )

    def selects(self, half: HalfMessage) -> bool:
        """Whether this one is selected."""
        return (
            self.topic in ("", half.topic)
            and self.transaction_id in ("", half.transaction_id)
            and self.begin_ms <= half.born_ms
            and (not self.end_ms or half.born_ms < self.end_ms)
        )


EVERYTHING: Final = Wanted()


class Page(NamedTuple):
    """`next_offset` is None after the last page."""

    halves: Sequence[HalfMessage]
    next_offset: int | None


class Listing:
    """On the loop, on any replica: as far as it follows."""

    def __init__(
        self,
        pending: PendingHalves,
        aside: PendingHalves,
        guard: Guard,
        *,
        has_all: Callable[[], bool],
    ) -> None:
        """`has_all`: whether everything confirmed has been read."""
        self._pending = pending
        self._aside = aside
        self._guard = guard
        self._has_all = has_all
        self._has_caught_up = False

    def followed(self) -> None:
        """The state has advanced. A replica that takes messages is complete only for moments."""
        self._has_caught_up = self._has_caught_up or self._has_all()

    def open(
        self, wanted: Wanted = EVERYTHING, *, from_offset: int = 0, limit: int = PAGE_MAX
    ) -> Page:
        """Transactions that their producers may still end. One that is checked between two pages
        moves to the end.

        Raises:
            InvalidArgument: the begin time is after the end time, or no page continues there.
            ReplicaBehind: this replica has not read them since its start.
            ShuttingDown, StoreFailed.
        """
        return self._page(self._pending, wanted, from_offset, limit)

    def aside(
        self, wanted: Wanted = EVERYTHING, *, from_offset: int = 0, limit: int = PAGE_MAX
    ) -> Page:
        """Transactions for an operator to decide, by `Ends.end` with `by_operator`. As `open`."""
        return self._page(self._aside, wanted, from_offset, limit)

    def _page(self, state: PendingHalves, wanted: Wanted, from_offset: int, limit: int) -> Page:
        self._check(wanted, from_offset)
        limit = max(1, min(limit, PAGE_MAX))
        offsets = state.all_offsets()
        first = bisect_left(offsets, from_offset)
        found: list[HalfMessage] = []
        for number, offset in enumerate(offsets[first : first + LOOKS_MAX], first + 1):
            half = state.at(offset)
            assert half is not None, "nothing changes in between"
            # One that is stored twice is listed at its newest record.
            is_newest = state.of(name_of(half))[-1].offset == offset
            if is_newest and wanted.selects(half):
                found.append(half)
            if len(found) == limit:
                return Page(found, offset + 1 if number < len(offsets) else None)
        end = first + LOOKS_MAX
        return Page(found, offsets[end] if end < len(offsets) else None)

    def _check(self, wanted: Wanted, from_offset: int) -> None:
        self._guard.check_available()
        wanted.check()
        if from_offset < 0:
            raise InvalidArgument(
                f"{from_offset} is not the end of a page: pass the offset that came with the "
                "previous page"
            )
        self.followed()
        if not self._has_caught_up:
            raise ReplicaBehind(
                "this replica is still reading the transactions that are open; ask again in a "
                "moment"
            )
