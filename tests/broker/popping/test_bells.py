"""Who waits for messages is woken when there may be some: by one ring each, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.popping.bells import Bells
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import Busy

ONE, OTHER = GroupQueue("g", "t", 0), GroupQueue("g", "t", 1)


class Growth:
    def __init__(self) -> None:
        self.wakes: dict[tuple[str, int], list[Callable[[], None]]] = {}

    def wait(self, topic: str, queue_id: int, wake: Callable[[], None]) -> None:
        self.wakes.setdefault((topic, queue_id), []).append(wake)

    def forget(self, topic: str, queue_id: int, wake: Callable[[], None]) -> None:
        self.wakes[topic, queue_id].remove(wake)
        if not self.wakes[topic, queue_id]:
            del self.wakes[topic, queue_id]

    def grow(self, key: GroupQueue) -> None:
        """As `Egress` has it: once for each wait."""
        for wake in self.wakes.pop((key.topic, key.queue_id)):
            wake()


class Scene:
    def __init__(self, polls_max: int = 100) -> None:
        self.growth = Growth()
        self.next_ms: dict[GroupQueue, int] = {}
        self.bells = Bells(
            self.growth, ManualClock(now_ms=5_000), next_ms=self.next_ms.get, polls_max=polls_max
        )
        self.woken: list[str] = []

    async def poll(self, name: str, *keys: GroupQueue, looks: bool = True, topic: str = "") -> None:
        with self.bells.waiting_at(keys, topic) as waiter:
            waiter.looks()
            if await waiter.rung(60, self.bells.ends):
                self.woken.append(name)
                if looks:
                    waiter.looks()


async def some_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_comes_wakes_the_poll_that_has_waited_for_longest() -> None:
    scene = Scene()
    polls = [asyncio.create_task(scene.poll(name, ONE, OTHER)) for name in ("first", "second")]
    await some_turns()
    scene.growth.grow(ONE)
    await some_turns()
    assert scene.woken == ["first"]
    scene.growth.grow(OTHER)
    await asyncio.gather(*polls)
    assert scene.woken == ["first", "second"]
    assert not scene.growth.wakes
    assert not scene.bells.is_waited_at(ONE)
    assert scene.bells.polls == 0


async def test_a_poll_that_goes_without_having_looked_passes_the_ring_on() -> None:
    scene = Scene()
    gone = asyncio.create_task(scene.poll("gone", ONE, looks=False))
    await asyncio.sleep(0)
    waits = asyncio.create_task(scene.poll("waits", ONE))
    await some_turns()
    scene.growth.grow(ONE)
    await asyncio.gather(gone, waits)
    assert scene.woken == ["gone", "waits"]


async def test_a_poll_that_is_cancelled_when_it_was_woken_passes_the_ring_on() -> None:
    scene = Scene()
    gone = asyncio.create_task(scene.poll("gone", ONE))
    await asyncio.sleep(0)
    waits = asyncio.create_task(scene.poll("waits", ONE))
    await some_turns()
    scene.growth.grow(ONE)
    gone.cancel()
    await asyncio.gather(gone, waits, return_exceptions=True)
    assert scene.woken == ["waits"]


async def test_what_comes_to_a_retry_topic_wakes_one_poll_for_each_topic() -> None:
    scene = Scene()
    names = {"a1": "a", "a2": "a", "b1": "b"}
    polls = [asyncio.create_task(scene.poll(each, ONE, topic=names[each])) for each in names]
    await some_turns()
    scene.growth.grow(ONE)
    await some_turns()
    assert scene.woken == ["a1", "b1"]
    scene.bells.ring(ONE)
    await asyncio.gather(*polls)
    assert scene.woken == ["a1", "b1", "a2"]
    assert not scene.growth.wakes
    assert not scene.bells.is_waited_at(ONE)


async def test_a_message_that_comes_again_wakes_somebody_at_its_time() -> None:
    scene = Scene()
    scene.next_ms[OTHER] = 5_010
    async with asyncio.timeout(5):
        await scene.poll("only", ONE, OTHER)
    assert scene.woken == ["only"]


async def test_a_time_that_becomes_earlier_counts() -> None:
    scene = Scene()
    scene.next_ms[ONE] = 5_000_000
    poll = asyncio.create_task(scene.poll("only", ONE))
    await some_turns()
    scene.next_ms[ONE] = 5_010
    scene.bells.times_changed(ONE)
    async with asyncio.timeout(5):
        await poll
    assert scene.woken == ["only"]


async def test_only_so_many_polls_wait() -> None:
    scene = Scene(polls_max=1)
    poll = asyncio.create_task(scene.poll("first", ONE))
    await some_turns()
    with pytest.raises(Busy, match=r"groups\.waiting_polls_max"):
        await scene.poll("second", OTHER)
    scene.growth.grow(ONE)
    await poll
    scene.next_ms[OTHER] = 5_000
    await scene.poll("third", OTHER)
    assert scene.woken == ["first", "third"]


class Node:
    """Another node, which looks when it is told."""

    def __init__(self, scene: Scene, *keys: GroupQueue) -> None:
        self.told = 0
        self.may_have = True
        self.waiter = scene.bells.wait_far(keys, "", self._tell, lambda: self.may_have)
        self.waiter.looks()

    def _tell(self) -> None:
        self.told += 1


async def test_another_node_is_told_once_until_it_has_looked_and_again_if_more_has_come() -> None:
    scene = Scene()
    node = Node(scene, ONE, OTHER)
    assert node.told == 1  # it does not know what is there
    node.waiter.looks()
    scene.growth.grow(ONE)
    assert node.told == 2
    for key in (ONE, OTHER, ONE):
        scene.growth.grow(key)
    assert node.told == 2
    node.waiter.looks()
    assert node.told == 3
    node.waiter.looks()
    assert node.told == 3
    # What it took by its look rings, too: then nothing is left.
    scene.growth.grow(ONE)
    scene.bells.ring(ONE)
    node.may_have = False
    node.waiter.looks()
    assert node.told == 4
    scene.bells.leave_far(node.waiter)
    assert not scene.growth.wakes
    assert scene.bells.far == 0


async def test_while_another_node_looks_what_comes_wakes_a_poll_here() -> None:
    scene = Scene()
    node = Node(scene, ONE)
    polling = asyncio.create_task(scene.poll("here", ONE))
    await some_turns()
    scene.growth.grow(ONE)
    await some_turns()
    assert (scene.woken, node.told) == (["here"], 1)
    await polling


@pytest.mark.parametrize("how", ["passes on", "goes", "hangs"])
async def test_a_ring_for_another_node_that_does_not_look_wakes_a_poll_here(how: str) -> None:
    scene = Scene()
    node = Node(scene, ONE)
    node.waiter.looks()
    polling = asyncio.create_task(scene.poll("here", ONE))
    await some_turns()
    scene.growth.grow(ONE)
    assert node.told == 2
    await some_turns()
    assert scene.woken == []
    if how == "passes on":
        node.waiter.pass_on()
    elif how == "goes":
        scene.bells.leave_far(node.waiter)
    async with asyncio.timeout(5):
        await polling
    assert scene.woken == ["here"]


async def test_a_message_that_is_due_again_is_told_to_another_node() -> None:
    scene = Scene()
    scene.next_ms[ONE] = 5_010
    node = Node(scene, ONE)
    node.waiter.looks()
    async with asyncio.timeout(5):
        while node.told < 2:
            await asyncio.sleep(0.01)


async def test_too_many_groups_of_other_nodes_are_refused() -> None:
    scene = Scene(polls_max=1)
    Node(scene, ONE)
    with pytest.raises(Busy):
        Node(scene, OTHER)
