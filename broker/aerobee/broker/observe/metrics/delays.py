"""Figures of messages that arrive at a time, with RocketMQ's names where it has them.

Owns: the last count of what waits for each topic. Counting looks through the whole index, on a
thread, so it is done once in COUNT_INTERVAL_S at most.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from aerobee.broker.delayed.wired import Delays
from aerobee.broker.store.tables.config_tables import TopicTable
from aerobee.broker.timers.entries import TIMER_QUEUE
from aerobee.broker.timers.pending import FIRST, LAST, BoolArray, Rows
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MqError
from aerobee.runtime.metrics.families import (
    OTHER,
    AnyFamily,
    HistogramFamily,
    gauge,
    one_counter,
    one_gauge,
)
from aerobee.store_format.java_hash import java_string_hash

COUNT_INTERVAL_S: Final = 30.0
_ALL: Final = 1 << 40


class DelayFigures:
    """On the loop."""

    def __init__(
        self, delays: Delays, topics: TopicTable, clock: Clock, *, topics_max: int
    ) -> None:
        """Topics beyond `topics_max`, those with the fewest messages, are added up."""
        self._delays = delays
        self._topics = topics
        self._clock = clock
        self._topics_max = topics_max
        self._counts: dict[str, int] | None = None
        self._counted_s = float("-inf")

    async def families(self) -> list[AnyFamily]:
        """What is not known now is absent."""
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
                "How late the oldest message is that is due, in milliseconds.",
                late_ms,
            ),
            one_counter(
                "aerobee_delayed_messages_given_up_total",
                "Messages that could not be delivered when their time had come.",
                delays.copies.given_up,
            ),
        ]

    async def _by_topic(self) -> dict[str, int]:
        now_s = self._clock.monotonic_s()
        if self._counts is None or now_s - self._counted_s >= COUNT_INTERVAL_S:
            try:
                rows = await self._delays.finder.search(FIRST, LAST, limit=_ALL, accepts=_any)
            except MqError:
                return {}
            self._counts, self._counted_s = self._named(rows), now_s
        return self._counts

    def _named(self, rows: Rows) -> dict[str, int]:
        names = {java_string_hash(name): name for name in self._topics.names()}
        counts = Counter(rows["topic_hash"].tolist()).most_common()
        found = {OTHER: 0}
        for number, (topic_hash, count) in enumerate(counts):
            is_shown = number < self._topics_max and topic_hash in names
            name = names[topic_hash] if is_shown else OTHER
            found[name] = found.get(name, 0) + count
        return found


def _any(rows: Rows) -> BoolArray:
    accepted: BoolArray = rows["due_ms"] >= 0
    return accepted
