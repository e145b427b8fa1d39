"""What is open, and what was set aside, as an operator sees it: page by page."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from aerobee.broker.transactions.pending import PendingHalves, name_of
from aerobee.store_format.transaction_records import HalfMessage

PAGE_MAX: Final = 1_000
LOOKS_MAX: Final = 2_000
"""Records that one page looks at; it may end before it is full."""


class Page(NamedTuple):
    """`next_offset` is None after the last page."""

    halves: Sequence[HalfMessage]
    next_offset: int | None


class Listing:
    """On the loop, of any replica: as far as it follows."""

    def __init__(self, pending: PendingHalves, aside: PendingHalves) -> None:
        self._pending = pending
        self._aside = aside

    def open(self, *, topic: str = "", from_offset: int = 0, limit: int = PAGE_MAX) -> Page:
        """Transactions that their producers may still end; `topic` empty: of all topics. What is
        checked between two pages moves to the end."""
        return _page(self._pending, topic, from_offset, limit)

    def aside(self, *, topic: str = "", from_offset: int = 0, limit: int = PAGE_MAX) -> Page:
        """Transactions that an operator decides, by `Ends.end` with `by_operator`."""
        return _page(self._aside, topic, from_offset, limit)


def _page(state: PendingHalves, topic: str, from_offset: int, limit: int) -> Page:
    limit = max(1, min(limit, PAGE_MAX))
    offsets = state.all_offsets()
    first = bisect_left(offsets, from_offset)
    found: list[HalfMessage] = []
    for number, offset in enumerate(offsets[first : first + LOOKS_MAX], first + 1):
        half = state.at(offset)
        assert half is not None, "nothing changes in between"
        # One that is stored twice is listed where its newest record is.
        is_newest = state.of(name_of(half))[-1].offset == offset
        if is_newest and topic in ("", half.topic):
            found.append(half)
        if len(found) == limit:
            return Page(found, offset + 1 if number < len(offsets) else None)
    return Page(found, offsets[first + LOOKS_MAX] if first + LOOKS_MAX < len(offsets) else None)
