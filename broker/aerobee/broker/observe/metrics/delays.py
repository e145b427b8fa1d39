"""Metrics of delayed messages, with RocketMQ's names where it has them.

Owns: the last count of waiting messages per topic. Counting scans the whole index, on a thread, so
it is done at most once per COUNT_INTERVAL_S.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aerobee.broker.delayed.counts import WaitingCount
from aerobee.broker.delayed.wired import Delays
from aerobee.broker.timers.entries import TIMER_QUEUE
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.metrics.families import (
    OTHER,
    AnyFamily,
    HistogramFamily,
    gauge,
    one_counter,
    one_gauge,
)

COUNT_INTERVAL_S: Final = 30.0


class DelayFigures:
    """On the loop."""

    def __init__(self, delays: Delays, clock: Clock, *, topics_max: int) -> None:
        """Topics above `topics_max`, those with the fewest messages, are added up."""
        self._delays = delays
        self._clock = clock
        self._topics_max = topics_max
        self._counts: dict[str, int] | None = None
        self._counted_s = float("-inf")

    async def families(self) -> list[AnyFamily]:
        """Unknown values are absent."""
        waiting = gauge("rocketmq_timing_messages", "Messages that wait for a time.", "topic")
        for topic, count in (await self._by_topic()).items():
            waiting.add(count, topic)
        levels = gauge("aerobee_delay_level_messages", "Messages of a delay level.", "level")
        delays = self._delays
        for level in delays.feeder.levels:
            progress, bounds = delays.progress().of(level), delays.waiting.bounds(level)
            floor = max(progress.floor, bounds.min_offset)
            levels.add(max(0, bounds.max_offset - floor - len(progress.loose)), str(level))
        latency = HistogramFamily(
            "rocketmq_delay_message_latency", "How late messages were delivered, in milliseconds."
        )
        latency.add(delays.latency_ms.copy())
        return [waiting, levels, latency, *self._lags()]

    def _lags(self) -> list[AnyFamily]:
        delays = self._delays
        behind = delays.waiting.bounds(TIMER_QUEUE).max_offset - delays.feeder.index.fed_end
        overdue = delays.mover.overdue()
        count = late_ms = None
        if overdue is not None:
            count, oldest_ms = overdue
            late_ms = 0 if oldest_ms is None else max(0, self._clock.now_ms() - oldest_ms)
        return [
            one_gauge(
                "rocketmq_timer_enqueue_lag",
                "Messages of the timer topic that the index does not have yet.",
                max(0, behind),
            ),
            one_gauge(
                "rocketmq_timer_dequeue_lag",
                "Messages that are due and not delivered; no more than 10,000 are counted.",
                count,
            ),
            one_gauge(
                "rocketmq_timer_dequeue_latency",
                "How late the oldest due message is, in milliseconds.",
                late_ms,
            ),
            one_counter(
                "aerobee_delayed_messages_given_up_total",
                "Messages that could not be delivered when they were due.",
                delays.copies.given_up,
            ),
        ]

    async def _by_topic(self) -> dict[str, int]:
        now_s = self._clock.monotonic_s()
        if self._counts is None or now_s - self._counted_s >= COUNT_INTERVAL_S:
            try:
                counts = await self._delays.counts.timers()
            except AerobeeError:
                return {}
            self._counts, self._counted_s = self._named(counts), now_s
        return self._counts

    def _named(self, counts: Sequence[WaitingCount]) -> dict[str, int]:
        found = {OTHER: 0}
        most_first = sorted(counts, key=lambda each: -each.messages)
        for number, each in enumerate(most_first):
            is_shown = number < self._topics_max and each.topic
            name = each.topic if is_shown else OTHER
            found[name] = found.get(name, 0) + each.messages
        return found
