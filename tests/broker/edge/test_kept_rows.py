"""Pages that refresh themselves share the rows of all groups; these cost little of the time."""

from __future__ import annotations

import asyncio

from aerobee.broker.edge.own.group_lag_rows import KEPT_FACTOR, KEPT_S_MAX, KeptRows
from aerobee.broker.observe.group_totals import TotalsRead
from aerobee.runtime.clock import ManualClock
from aerobee.v1 import broker_pb2


class Made:
    """Rows that take a time to make."""

    def __init__(self, takes_ms: int) -> None:
        self.clock = ManualClock()
        self.takes_ms = takes_ms
        self.count = 0
        self.kept = KeptRows(self._make, self.clock.monotonic_s)

    async def _make(self, found: TotalsRead) -> broker_pb2.GroupLagRows:
        self.count += 1
        await asyncio.sleep(0)
        self.clock.advance_ms(self.takes_ms)
        return broker_pb2.GroupLagRows(groups=[f"g{self.count}"])

    async def ask(self) -> broker_pb2.GroupLagRows:
        now_s = self.clock.monotonic_s()
        return await self.kept.rows(TotalsRead({}, {}, frozenset(), {}, now_s))


async def test_rows_are_kept_for_a_multiple_of_what_they_cost() -> None:
    made = Made(takes_ms=10)
    await made.ask()
    made.clock.advance_ms(10 * KEPT_FACTOR - 1)
    rows = await made.ask()
    assert (list(rows.groups), rows.age_ms) == (["g1"], 10 * KEPT_FACTOR + 9)
    made.clock.advance_ms(2)
    assert list((await made.ask()).groups) == ["g2"]


async def test_rows_that_cost_much_are_made_again_after_a_minute() -> None:
    made = Made(takes_ms=1_000)
    await made.ask()
    made.clock.advance_ms(int(KEPT_S_MAX * 1_000) + 1)
    await made.ask()
    assert made.count == 2


async def test_who_asks_while_they_are_made_shares_them() -> None:
    made = Made(takes_ms=10)
    answers = await asyncio.gather(*(made.ask() for _ in range(20)))
    assert made.count == 1
    assert {each.groups[0] for each in answers} == {"g1"}
