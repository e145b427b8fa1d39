"""Metrics of delayed messages, with RocketMQ's names where it has them.

Owns: the last count of waiting messages per topic. Counting scans the whole index, on a thread, so
it is done at most once per COUNT_INTERVAL_S.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from aerobee.broker.delayed.copies import Copies
from aerobee.broker.delayed.counts import WaitingCount, WaitingCounts
from aerobee.broker.delayed.feeder import Feeder
from aerobee.broker.delayed.mover import Mover
from aerobee.broker.delayed.waiting_log import WaitingLog
from aerobee.broker.timers.entries import TIMER_QUEUE
from aerobee.broker.timers.progress import TimerProgress
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
from aerobee.runtime.metrics.histogram import Histogram

COUNT_INTERVAL_S: Final = 30.0


class DelayFigures:
    """On the loop."""

    def __init__(
        self,
        feeder: Feeder,
        mover: Mover,
        waiting: WaitingLog,
        counts: WaitingCounts,
        copies: Copies,
        clock: Clock,
        *,
        progress: Callable[[], TimerProgress],
        latency_ms: Histogram,
        topics_max: int,
    ) -> None:
        """`latency_ms`: how late messages were delivered. Topics above `topics_max`, those with the
        fewest messages, are added up."""
        self._feeder = feeder
        self._mover = mover
        self._waiting = waiting
        self._waiting_counts = counts
        self._copies = copies
        self._clock = clock
        self._progress = progress
        self._latency_ms = latency_ms
        self._topics_max = topics_max
        self._counts: dict[str, int] | None = None
        self._counted_s = float("-inf")

    async def families(self) -> list[AnyFamily]:
        """Unknown values are absent."""
        waiting = gauge("rocketmq_timing_messages", "Messages that wait for a time.", "topic")
        for topic, count in (await self._by_topic()).items():
            waiting.add(count, topic)
        levels = gauge("aerobee_delay_level_messages", "Messages of a delay level.", "level")
        for level in self._feeder.levels:
            progress, bounds = self._progress().of(level), self._waiting.bounds(level)
            floor = max(progress.floor, bounds.min_offset)
            levels.add(max(0, bounds.max_offset - floor - len(progress.loose)), str(level))
        latency = HistogramFamily(
            "rocketmq_delay_message_latency", "How late messages were delivered, in milliseconds."
        )
        latency.add(self._latency_ms.copy())
        return [waiting, levels, latency, *self._lags()]

    def _lags(self) -> list[AnyFamily]:
        behind = self._waiting.bounds(TIMER_QUEUE).max_offset - self._feeder.index.fed_end
        overdue = self._mover.overdue()
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
                self._copies.given_up,
            ),
        ]

    async def _by_topic(self) -> dict[str, int]:
        now_s = self._clock.monotonic_s()
        if self._counts is None or now_s - self._counted_s >= COUNT_INTERVAL_S:
            try:
                counts = await self._waiting_counts.timers()
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
