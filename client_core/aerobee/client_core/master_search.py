"""Questions to the masters of all broker groups.

Invariant: an answer names each broker group of the cluster whose part is missing, also one of which
no broker is alive. So nothing that is unknown is taken for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.group_calls import UNANSWERED
from aerobee.client_core.offsets import all_of
from aerobee.cluster_view.methods import DESCRIBE_CLUSTER
from aerobee.cluster_view.route import Endpoint
from aerobee.runtime import errors
from aerobee.v1 import nameserver_pb2

MASTER_POLL_S: Final = 0.1

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


class Masters:
    """Which brokers a question goes to. Every call may raise Unreachable and DeadlineExceeded: no
    nameserver answers."""

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._nameservers = connection.nameservers
        self._clock = connection.clock
        self._cluster = connection.cluster
        self._timeout_ms = timeout_ms

    async def describe_cluster(self) -> nameserver_pb2.ClusterDescription:
        """All registered brokers with their last heartbeats, and the broker groups."""
        return await self._nameservers.call(
            DESCRIBE_CLUSTER,
            nameserver_pb2.DescribeClusterRequest(cluster=self._cluster),
            timeout_ms=self._timeout_ms,
        )

    async def roll_call(self) -> RollCall:
        """The live masters, and the broker groups without one. Waits for a group that is electing
        one; it is absent if it has none in time, and at once if none of its brokers is alive."""
        end_s = self._clock.monotonic_s() + self._timeout_ms / 1_000
        while True:
            description = await self.describe_cluster()
            call = RollCall.of(description)
            alive = {each.identity.broker_name for each in description.brokers}
            if alive.isdisjoint(call.absent) or self._clock.monotonic_s() >= end_s:
                return call
            await asyncio.sleep(MASTER_POLL_S)

    async def all(self, wanted: Collection[str] = ()) -> list[Endpoint]:
        """The masters of all broker groups, or of the given ones, by broker name: for what must be
        done on each of them. Raises NoBrokerAvailable: one of them has none now."""
        call = await self.roll_call()
        masters = {endpoint.broker_name: endpoint for endpoint in call.masters}
        names = set(wanted) or {*masters, *call.absent}
        if missing := sorted(names - masters.keys()):
            raise errors.NoBrokerAvailable(
                f"{', '.join(missing)} has no master now, and nothing was changed; see `aerobee "
                "cluster show`"
            )
        return [masters[name] for name in sorted(names)]

    async def of(self, broker_name: str) -> Endpoint:
        """The live master of a broker group; waits for one as `roll_call` does.

        Raises NoBrokerAvailable: it has none now, or there is no such group.
        """
        for endpoint in (await self.roll_call()).masters:
            if endpoint.broker_name == broker_name:
                return endpoint
        raise errors.NoBrokerAvailable(
            f"{broker_name} has no master now, or is no broker group; see `aerobee cluster show`"
        )

    async def readers(self) -> AnswerList[Endpoint]:
        """One live broker of each broker group that has its messages, by broker name: the master,
        or a slave if there is none. `unanswered`: the groups without a live broker."""
        description = await self.describe_cluster()
        readers: dict[str, Endpoint] = {}
        for endpoint in map(Endpoint.from_proto, description.brokers):
            if endpoint.is_master or endpoint.broker_name not in readers:
                readers[endpoint.broker_name] = endpoint
        absent = {each.broker_name for each in description.groups} - readers.keys()
        return AnswerList([readers[name] for name in sorted(readers)], sorted(absent))


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
