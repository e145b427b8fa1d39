"""A live tail: what it shows, what it costs, and what ends it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aerobee import MessageQueue, QueueBounds
from aerobee.access.credentials import Anonymous
from aerobee.client_core.admin_topics import Topic
from aerobee.console import tail_pages
from aerobee.console.tail_pages import TailPages
from aerobee.console.tailing import BEHIND_MAX, QUEUES_PER_LOOK_MAX, Tail, Wish
from aerobee.runtime import errors
from aerobee.runtime.clock import ManualClock
from tests.console.conftest import Open
from tests.console.fake_admin import NASTY, Cluster, message

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(20)]


@pytest.fixture
def orders(cluster: Cluster) -> Cluster:
    cluster.topics = {"orders": Topic("orders", {"broker-a": 20}, "rw", False, {})}
    cluster.bounds = {queue: QueueBounds(0, 5, 1) for queue in QUEUES}
    cluster.messages = [message(offset=number, UNIQ_KEY=f"ID-{number}") for number in range(100)]
    return cluster


def grow(cluster: Cluster, end: int, *queues: MessageQueue) -> None:
    cluster.bounds |= {queue: QueueBounds(0, end, 1) for queue in queues or QUEUES[:1]}


def tail_of(cluster: Cluster) -> Tail:
    return Tail(cluster.client(Anonymous()), "orders", Wish())


async def test_it_shows_what_comes_from_now_on(orders: Cluster) -> None:
    tail = tail_of(orders)
    assert (await tail.look()).messages == []
    orders.messages = orders.messages[:7]
    grow(orders, 7)
    assert [each.queue_offset for each in (await tail.look()).messages] == [5, 6]
    assert (await tail.look()).messages == []


async def test_a_look_costs_the_same_however_much_comes(orders: Cluster) -> None:
    tail = tail_of(orders)
    await tail.look()
    orders.asked.clear()
    grow(orders, 1_000_000, *QUEUES)
    look = await tail.look()
    assert orders.asked == ["describe", "bounds_by_broker", *["from_queue"] * QUEUES_PER_LOOK_MAX]
    assert look.skipped == 20 * (1_000_000 - 5 - BEHIND_MAX)


async def test_a_broker_that_is_away_is_named_and_read_on_when_it_is_back(orders: Cluster) -> None:
    tail = tail_of(orders)
    await tail.look()
    grow(orders, 7)
    orders.messages = orders.messages[:7]
    orders.refused = {"from_queue": errors.Unreachable("it is away")}
    assert (await tail.look()).unanswered == ("broker-a",)
    orders.refused = {}
    assert len((await tail.look()).messages) == 2


async def events_of(pages: TailPages, tail: Tail, **others: Any) -> AsyncIterator[dict[str, Any]]:
    is_over = others.pop("is_over", lambda: False)
    async for text in pages.stream(tail, is_over, shows_bodies=others.get("shows_bodies", True)):
        kind, data, *_ = text.split("\n")
        yield {"kind": kind.removeprefix("event: "), **json.loads(data.removeprefix("data: "))}


async def test_it_goes_on_after_trouble_and_ends_when_waiting_does_not_help(
    orders: Cluster,
) -> None:
    pages = TailPages(ManualClock(), tick_s=0.001)
    events = events_of(pages, tail_of(orders))
    assert (await anext(events))["kind"] == "look"
    orders.refused = {"describe": errors.Unreachable("no nameserver answers")}
    trouble = await anext(events)
    assert (trouble["kind"], trouble["why"]) == ("trouble", "no nameserver answers")
    orders.refused = {}
    assert (await anext(events))["kind"] == "look"
    orders.refused = {"describe": errors.AccessDenied("this needs Sub on Topic:orders")}
    assert (await anext(events))["kind"] == "over"
    assert [each async for each in events] == []


async def test_it_ends_with_the_session_and_with_the_console(orders: Cluster) -> None:
    pages = TailPages(ManualClock(), tick_s=60)
    events = events_of(pages, tail_of(orders), is_over=lambda: True)
    assert [each["kind"] async for each in events] == ["over"]
    pages.stop()
    kinds = [each["kind"] async for each in events_of(pages, tail_of(orders))]
    assert kinds == ["look", "trouble"]


async def test_it_ends_by_itself(orders: Cluster) -> None:
    clock = ManualClock()
    events = events_of(TailPages(clock, tick_s=0.001), tail_of(orders))
    await anext(events)
    clock.advance_ms(16 * 60 * 1_000)
    assert (await anext(events))["kind"] == "over"


async def test_texts_of_others_are_data_and_bodies_can_be_hidden(orders: Cluster) -> None:
    tail = tail_of(orders)
    await tail.look()
    nasty = message(body=NASTY.encode(), offset=5, KEYS=NASTY, TAGS=NASTY, UNIQ_KEY=NASTY)
    orders.messages = [nasty]
    grow(orders, 6)
    pages = TailPages(ManualClock(), tick_s=60)
    (row,) = (await anext(events_of(pages, tail, shows_bodies=False)))["messages"]
    assert row["body"] == "hidden"
    assert row["href"].startswith("/message?topic=orders&")
    assert "\u202e" not in json.dumps(row, ensure_ascii=False)


async def test_only_so_many_are_open_at_once(
    orders: Cluster, browse: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_pages, "TAILS_MAX", 0)
    answer = await (await browse()).get("/topics/orders/tail/events")
    assert (answer.status_code, "close some of them" in answer.text) == (503, True)


async def test_a_filter_that_cannot_be_is_refused(orders: Cluster, browse: Open) -> None:
    answer = await (await browse()).get("/topics/orders/tail/events?tags=a b")
    assert answer.status_code == 400
