"""What clients saw is asked for hundreds of times a second while they send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import SupportsIndex, overload

from tests.failover.history import Acknowledged, History, Lane

MANY = 50_000
LANE = Lane("p0", 0)


class CountingList(list[Acknowledged]):
    """Counts how many of its elements were looked at."""

    looked_at = 0

    @overload
    def __getitem__(self, index: SupportsIndex) -> Acknowledged: ...

    @overload
    def __getitem__(self, index: slice) -> list[Acknowledged]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Acknowledged | list[Acknowledged]:
        found = super().__getitem__(index)
        self.looked_at += len(found) if isinstance(found, list) else 1
        return found

    def __iter__(self) -> Iterator[Acknowledged]:
        for one in super().__iter__():
            self.looked_at += 1
            yield one


def acknowledged_each_second() -> CountingList:
    return CountingList(
        Acknowledged(LANE, number, number, number - 0.5, float(number)) for number in range(MANY)
    )


def test_a_pause_is_found_without_looking_at_everything_that_was_acknowledged_before() -> None:
    acknowledged = acknowledged_each_second()
    history = History(acknowledged)
    fault_s = MANY - 3.0
    assert history.pause_s(fault_s) == 1.0
    assert history.pause_s(float(MANY)) is None
    assert acknowledged.looked_at < 100


def test_a_gap_is_found_without_looking_at_anything_outside_of_its_time() -> None:
    acknowledged = acknowledged_each_second()
    del acknowledged[100]
    acknowledged.looked_at = 0
    assert History(acknowledged).gap_s(95.0, 105.0) == 2.0
    assert acknowledged.looked_at < 100
