"""Items at the masters of all broker groups, read page by page and merged into one order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from aerobee.client_core.group_calls import UNANSWERED
from aerobee.client_core.offsets import all_of
from aerobee.cluster_view.route import Endpoint
from aerobee.runtime import errors

Item = TypeVar("Item")
Place = TypeVar("Place", str, int)

Page = Callable[[Endpoint, int, Place], Awaitable[tuple[Sequence[Item], Place]]]
"""At one master, a limited number of items after a place; and the place after them, false if none
follow."""


class Searched(NamedTuple, Generic[Item]):
    """`more`: there are others. `unanswered`: broker groups that could not be asked."""

    items: tuple[Item, ...]
    more: bool
    unanswered: tuple[str, ...]


async def search_masters(
    masters: Sequence[Endpoint],
    page: Page[Place, Item],
    *,
    begin: Place,
    order: Callable[[Item], int],
    items_max: int,
) -> Searched[Item]:
    """The first `items_max` of all masters. `begin`: the place before everything.

    Raises:
        NoBrokerAvailable: none of them answers.
        AerobeeError: as `page`, except for the errors in `UNANSWERED`.
    """

    async def all_at(endpoint: Endpoint) -> tuple[Sequence[Item], bool] | None:
        found: list[Item] = []
        after = begin
        while True:
            try:
                items, after = await page(endpoint, items_max - len(found), after)
            except UNANSWERED:
                return None
            found += items
            if not after or len(found) >= items_max:
                return found, bool(after)

    names = [endpoint.broker_name for endpoint in masters]
    answers = await all_of([all_at(each) for each in masters])
    unanswered = tuple(name for name, answer in zip(names, answers, strict=True) if answer is None)
    if len(unanswered) == len(names):
        raise nobody_answers(names)
    items = sorted((item for answer in answers if answer for item in answer[0]), key=order)
    more = len(items) > items_max or any(answer[1] for answer in answers if answer)
    return Searched(tuple(items[:items_max]), more, unanswered)


def nobody_answers(names: Sequence[str]) -> errors.NoBrokerAvailable:
    """`names`: the broker groups that have a master."""
    return errors.NoBrokerAvailable(
        f"no broker answers ({', '.join(names) or 'none has a master'}): see `aerobee cluster show`"
    )
