"""Full collections take a hundredth of the time at most, and Python decides again afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys

from aerobee.runtime.clock import SystemClock
from aerobee.runtime.spared_collector import SparedCollector


class SetClock(SystemClock):
    """Set by hand."""

    now_s = 1_000.0

    def monotonic_s(self) -> float:
        return self.now_s


async def test_after_a_long_collection_the_next_waits_a_hundred_times_as_long() -> None:
    time = SetClock()
    before = gc.get_threshold()
    collector = SparedCollector(time)
    before_it = set(gc.callbacks)
    collector.begin()
    (on_collection,) = set(gc.callbacks) - before_it
    try:
        for took_s, is_put_off in ((0.001, False), (0.5, True)):
            on_collection("start", {"generation": 2})
            time.now_s += took_s
            on_collection("stop", {"generation": 2})
            assert (gc.get_threshold() != before) == is_put_off
        on_collection("stop", {"generation": 1})
        for passed_s, is_put_off in ((49.0, True), (1.0, False)):
            time.now_s += passed_s
            collector.look()
            assert (gc.get_threshold() != before) == is_put_off
        on_collection("start", {"generation": 2})
        time.now_s += 1
        on_collection("stop", {"generation": 2})
    finally:
        collector.end()
    assert gc.get_threshold() == before
    assert set(gc.callbacks) == before_it


OPENED_TWICE = """
import gc
import weakref
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.spared_collector import SparedCollector

class Store:
    def __init__(self):
        self.itself = self

collector = SparedCollector(SystemClock())
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
