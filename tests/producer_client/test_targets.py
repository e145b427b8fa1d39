"""Topics as destinations: callers go on in the order in which they asked."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from aerobee.cluster_view.route import TopicRoute
from aerobee.cluster_view.routes import Routes
from aerobee.producer_client.targets import Targets
from aerobee.runtime import errors


@pytest.fixture
def orders_route() -> TopicRoute:
    return TopicRoute("orders", 6, False, {}, {"broker-a": 4}, ())


class SlowRoutes:
    """A route that comes when told; whoever waits for it is woken a few turns later."""

    def __init__(self, route: Any) -> None:
        self._route = route
        self._known = False
        self.come = asyncio.Event()

    def cached(self, topic: str) -> Any:
        return self._route if self._known else None

    async def route(self, topic: str, *, create_missing: bool, timeout_ms: int) -> Any:
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                await self.come.wait()
        except TimeoutError:
            raise errors.Unreachable("no nameserver answers") from None
        self._known = True
        for _ in range(3):
            await asyncio.sleep(0)
        return self._route


def targets_over(routes: SlowRoutes) -> Targets:
    return Targets(cast(Routes, routes), create_missing=True, on_route=lambda route: None)


async def enter(targets: Targets, entered: list[int], number: int, timeout_ms: int = 5_000) -> None:
    if targets.known("orders") is None:
        await targets.find("orders", timeout_ms=timeout_ms)
    entered.append(number)


async def test_who_comes_while_others_wait_for_the_route_does_not_overtake_them(
    orders_route: TopicRoute,
) -> None:
    routes = SlowRoutes(orders_route)
    targets = targets_over(routes)
    entered: list[int] = []
    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(enter(targets, entered, number))
            await asyncio.sleep(0)
        routes.come.set()
        for number in range(5, 20):
            tasks.create_task(enter(targets, entered, number))
            await asyncio.sleep(0)
    assert entered == list(range(20))
    assert targets.known("orders") is not None, "nobody waits any more"


async def test_who_gives_up_waiting_holds_nobody_up(orders_route: TopicRoute) -> None:
    routes = SlowRoutes(orders_route)
    targets = targets_over(routes)
    entered: list[int] = []
    with pytest.raises(errors.Unreachable):
        await enter(targets, entered, 0, timeout_ms=10)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(enter(targets, entered, 1))
        await asyncio.sleep(0)
        routes.come.set()
    assert entered == [1]


class FullRoutes(SlowRoutes):
    """Creates no topic the first times, and says when to come again."""

    def __init__(self, route: Any, refusals: int, retry_after_ms: int) -> None:
        super().__init__(route)
        self.come.set()
        self.refusals = refusals
        self._retry_after_ms = retry_after_ms

    async def route(self, topic: str, *, create_missing: bool, timeout_ms: int) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise errors.Busy("too many topics just now", retry_after_ms=self._retry_after_ms)
        return await super().route(topic, create_missing=create_missing, timeout_ms=timeout_ms)


async def test_who_is_told_when_to_come_again_comes_again_if_there_is_time(
    orders_route: TopicRoute,
) -> None:
    routes = FullRoutes(orders_route, refusals=2, retry_after_ms=10)
    await targets_over(routes).find("orders", timeout_ms=5_000)
    assert routes.refusals == 0
    late = FullRoutes(orders_route, refusals=2, retry_after_ms=10_000)
    with pytest.raises(errors.Busy, match="just now"):
        await targets_over(late).find("orders", timeout_ms=5_000)
    assert late.refusals == 1
