"""What was begun in a stretch of a term counts only in that stretch."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aerobee.broker.replication.term_keeper import Stretch, TermKeeper
from aerobee.runtime.errors import NotMaster
from tests.support.property_runs import examples

ROLES = ("begin", "leave", "resume", "end")


def take(keeper: TermKeeper[int], role: str, epoch: int) -> Stretch[int] | None:
    match role:
        case "begin":
            return keeper.begin(epoch)
        case "leave":
            keeper.leave()
        case "resume":
            return keeper.resume()
        case "end":
            keeper.end()
    return None


def has_begun(history: Sequence[str]) -> bool:
    return [role for role in history if role in ("begin", "end")][-1:] == ["begin"]


def acts_after(history: Sequence[str]) -> bool:
    """The oracle, from the whole history: what came last since the newest begin."""
    since = list(itertools.takewhile(lambda role: role != "begin", reversed(history)))
    return has_begun(history) and next(iter(since), "") != "leave"


@settings(max_examples=examples(1_000))
@given(history=st.lists(st.sampled_from(ROLES), max_size=12), steps=st.sets(st.integers(0, 12)))
@example(history=["begin", "leave", "resume"], steps={1})
@example(history=["begin", "end", "resume", "begin"], steps={1})
def test_a_step_counts_if_nothing_broke_its_term_since_it_began(
    history: list[str], steps: set[int]
) -> None:
    keeper: TermKeeper[int] = TermKeeper()
    begun: dict[int, Stretch[int]] = {}
    for number in range(len(history) + 1):
        if number:
            acted = keeper.stretch is not None
            new = take(keeper, history[number - 1], number)
            assert (new is not None) == (keeper.stretch is not None and not acted)
            assert new in (None, keeper.stretch)
        acts = acts_after(history[:number])
        assert (keeper.stretch is not None) == acts
        assert keeper.is_master == has_begun(history[:number])
        if keeper.stretch is not None:
            newest = max(each for each in range(number) if history[each] == "begin") + 1
            assert keeper.stretch.term == newest
            if number in steps:
                begun[number] = keeper.stretch
        for begin, stretch in begun.items():
            lasted = all(acts_after(history[:moment]) for moment in range(begin, number + 1))
            assert stretch.is_over != lasted, (begin, number)
            if lasted:
                stretch.check()
            else:
                with pytest.raises(NotMaster):
                    stretch.check()


# ------------------------------------------------------------------------------------ in flight


class Pages:
    """A duty that copies one page after another; a copy takes a few turns of the loop. The next
    page is the one after the newest on the shelf when a stretch begins."""

    def __init__(self, pages: int, turns: Sequence[int]) -> None:
        self.keeper: TermKeeper[int] = TermKeeper()
        self.shelf: list[int] = []
        self._pages = pages
        self._turns = itertools.cycle(turns)

    async def copy_all(self, stretch: Stretch[int]) -> None:
        for page in range(len(self.shelf), self._pages):
            for _ in range(next(self._turns)):
                await asyncio.sleep(0)
            stretch.check()
            self.shelf.append(page)


Breaks = st.lists(st.tuples(st.sampled_from(ROLES), st.integers(0, 6)), max_size=12)


@settings(max_examples=examples(400))
@given(breaks=Breaks, turns=st.lists(st.integers(0, 3), min_size=1, max_size=5))
async def test_whathas_begun_again_in_each_stretch_is_done_once_and_in_order(
    breaks: list[tuple[str, int]], turns: list[int]
) -> None:
    pages, running = Pages(8, turns), []
    keeper = pages.keeper

    def take_role(role: str, epoch: int) -> None:
        if (stretch := take(keeper, role, epoch)) is not None:
            # The step of an earlier stretch may still run beside it.
            running.append(asyncio.ensure_future(pages.copy_all(stretch)))

    for epoch, (role, turns_until) in enumerate(breaks):
        take_role(role, epoch)
        before = list(pages.shelf)
        for _ in range(turns_until):
            await asyncio.sleep(0)
        assert keeper.stretch is not None or pages.shelf == before
    take_role("begin", len(breaks))
    outcomes: list[Any] = await asyncio.gather(*running, return_exceptions=True)
    assert {type(each) for each in outcomes} <= {NotMaster, type(None)}
    assert pages.shelf == list(range(8))
