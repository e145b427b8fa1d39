"""Questions to the masters of all broker groups.

Invariant: an answer names each broker group of the cluster whose part is missing, also one of which
no broker is alive. So nothing that is unknown is taken for nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from aerobee.client_core.group_calls import UNANSWERED
from aerobee.client_core.offsets import all_of
from aerobee.cluster_view.route import Endpoint
from aerobee.runtime import errors
from aerobee.v1 import nameserver_pb2

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Item = TypeVar("Item")
Place = TypeVar("Place", str, int)

Page = Callable[[Endpoint, int, Place], Awaitable[tuple[Sequence[Item], Place]]]
"""At one master, a limited number of items after a place; and the place after them, false if none
follow."""


class AnswerList(list[T]):
    """A list that brokers answered with."""

    def __init__(self, items: Iterable[T] = (), unanswered: Iterable[str] = ()) -> None:
        super().__init__(items)
        self.unanswered = tuple(unanswered)
        """Broker groups that could not be asked; their part is missing here."""


class AnswerDict(dict[K, V]):
    """A dict that brokers answered with."""

    def __init__(self, items: Mapping[K, V], unanswered: Iterable[str] = ()) -> None:
        super().__init__(items)
        self.unanswered = tuple(unanswered)
        """Broker groups that could not be asked; their part is missing here."""


@dataclass(frozen=True, slots=True)
class RollCall:
    """Who has to answer for an answer to be whole."""

    masters: tuple[Endpoint, ...]
    """The live ones, by broker name."""
    absent: tuple[str, ...]
    """The other broker groups of the cluster, by name: they have no master now."""

    @classmethod
    def of(cls, found: nameserver_pb2.ClusterDescription) -> RollCall:
        """By a nameserver's description, which has groups without a live broker, too."""
        endpoints = [Endpoint.from_proto(each) for each in found.brokers]
        masters = {each.broker_name: each for each in endpoints if each.is_master}
        names = {each.broker_name for each in endpoints}
        names |= {each.broker_name for each in found.groups}
        return cls(
            tuple(masters[name] for name in sorted(masters)),
            tuple(sorted(names - masters.keys())),
        )


async def ask_masters(
    call: RollCall, ask: Callable[[Endpoint], Awaitable[T]]
) -> tuple[dict[str, T], tuple[str, ...]]:
    """Their answers, by broker name, and the broker groups that did not answer.

    Raises:
        NoBrokerAvailable: there are broker groups, and none of them answers.
        AerobeeError: as `ask`, except for the errors in `UNANSWERED`.
    """
    silent = set(call.absent)
    answers: dict[str, T] = {}

    async def asked(endpoint: Endpoint) -> None:
        try:
            answers[endpoint.broker_name] = await ask(endpoint)
        except UNANSWERED:
            silent.add(endpoint.broker_name)

    await all_of([asked(each) for each in call.masters])
    if silent and not answers:
        raise nobody_answers(sorted(silent))
    return {name: answers[name] for name in sorted(answers)}, tuple(sorted(silent))


class Searched(NamedTuple, Generic[Item]):
    """`more`: there are others. `unanswered`: broker groups that could not be asked."""

    items: tuple[Item, ...]
    more: bool
    unanswered: tuple[str, ...]


async def search_masters(
    call: RollCall,
    page: Page[Place, Item],
    *,
    begin: Place,
    order: Callable[[Item], int],
    items_max: int,
) -> Searched[Item]:
    """The first `items_max` of all masters. `begin`: the place before everything.

    Raises:
        NoBrokerAvailable: none of them answers, or there is none.
        AerobeeError: as `page`, except for the errors in `UNANSWERED`.
    """

    async def all_at(endpoint: Endpoint) -> tuple[Sequence[Item], bool]:
        found: list[Item] = []
        after = begin
        while True:
            items, after = await page(endpoint, items_max - len(found), after)
            found += items
            if not after or len(found) >= items_max:
                return found, bool(after)

    answers, unanswered = await ask_masters(call, all_at)
    if not answers:
        raise nobody_answers([])
    items = sorted((item for found, _ in answers.values() for item in found), key=order)
    more = len(items) > items_max or any(is_more for _, is_more in answers.values())
    return Searched(tuple(items[:items_max]), more, unanswered)


def nobody_answers(names: Sequence[str]) -> errors.NoBrokerAvailable:
    """`names`: the broker groups."""
    return errors.NoBrokerAvailable(
        f"no broker answers ({', '.join(names) or 'none has a master'}): see `aerobee cluster show`"
    )
