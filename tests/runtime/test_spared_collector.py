"""Collections are short however much there is, and skip nothing when memory is short."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aerobee.runtime.clock import SystemClock
from aerobee.runtime.collector_pauses import CollectorPauses
from aerobee.runtime.spared_collector import THRESHOLDS, SparedCollector

IS_INCREMENTAL = gc.get_threshold()[2] == 0


class SetClock(SystemClock):
    """Set by hand."""

    now_s = 1_000.0

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture
def as_before() -> Iterator[None]:
    """Fails unless Python collects as before."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    assert gc.get_threshold() == thresholds
    assert gc.callbacks == callbacks
    assert gc.get_freeze_count() == 0


@pytest.mark.skipif(IS_INCREMENTAL, reason="pauses are bounded by Python")
@pytest.mark.usefixtures("as_before")
async def test_everything_is_looked_through_only_when_memory_is_short() -> None:
    clock, used, looks = SetClock(), 0, 0

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal looks
        is_whole = phase == "start" and info["generation"] == 2 and not gc.get_freeze_count()
        looks += is_whole
        clock.now_s += is_whole  # it takes a second

    collector = SparedCollector(clock, 1_000, used_bytes=lambda: used)
    collector.begin()
    gc.callbacks.append(on_collection)
    try:
        assert gc.get_threshold() == THRESHOLDS
        for used_bytes, passed_s, looks_so_far in (
            (499, 1, 0),
            (500, 1, 1),
            (700, 98, 1),  # at most a hundredth of the time
            (700, 2, 2),
            (874, 200, 2),  # has not grown by a quarter
            (875, 200, 3),
        ):
            used = used_bytes
            clock.now_s += passed_s
            gc.freeze()
            collector.look()
            assert looks == looks_so_far, (used_bytes, passed_s)
            assert gc.get_freeze_count() > 0
    finally:
        collector.end()
        gc.callbacks.remove(on_collection)


MANY = """
import asyncio, gc, sys
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.spared_collector import SparedCollector

class Client:
    def __init__(self):
        self.itself = self

async def main():
    collector = SparedCollector(SystemClock(), 1 << 60)
    sizes = []
    def on_collection(phase, info):
        if phase == "start":
            sizes.append(sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))
    collector.begin()
    collector.opened()
    gc.callbacks.append(on_collection)
    clients = [Client() for _ in range(100_000)]
    assert len(sizes) > 100, len(sizes)
    assert max(sizes) < 6_000, max(sizes)
    sizes.clear()
    for _ in range(100_000):
        Client()
    assert len(gc.get_objects()) < 6_000, "garbage is left"
    collector.end()

asyncio.run(main())
"""


@pytest.mark.skipif(IS_INCREMENTAL, reason="pauses are bounded by Python")
def test_a_collection_looks_at_little_however_much_there_is() -> None:
    """In a process of its own, which has little else in memory."""
    subprocess.run([sys.executable, "-c", MANY], check=True)


OPENED_TWICE = """
import gc
import weakref
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.spared_collector import SparedCollector

class Store:
    def __init__(self):
        self.itself = self

collector = SparedCollector(SystemClock(), 1 << 60)
store = Store()
closed = weakref.ref(store)
collector.opened()
assert gc.get_freeze_count() > 0
del store
gc.collect()
assert closed() is not None, "it was looked through"
collector.opened()
assert closed() is None, "a closed store is never collected"
"""


def test_what_was_opened_is_not_looked_through_until_it_is_opened_again() -> None:
    """In a process of its own: a full collection of all that tests have loaded takes a second."""
    subprocess.run([sys.executable, "-c", OPENED_TWICE], check=True)


@pytest.mark.usefixtures("as_before")
async def test_the_longest_pause_is_known() -> None:
    clock = SetClock()
    pauses = CollectorPauses(clock)
    assert pauses.longest_s == 0
    before = set(map(id, gc.callbacks))
    running = asyncio.create_task(pauses.run())
    await asyncio.sleep(0)
    try:
        (on_collection,) = [each for each in gc.callbacks if id(each) not in before]
        for took_s, longest_s in ((0.25, 0.25), (1.5, 1.5), (0.5, 1.5)):
            on_collection("start", {"generation": 2})
            clock.now_s += took_s
            on_collection("stop", {"generation": 2})
            assert pauses.longest_s == longest_s
    finally:
        running.cancel()
        await asyncio.wait((running,))
