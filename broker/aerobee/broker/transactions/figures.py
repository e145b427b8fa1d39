"""Metrics of transactions, with RocketMQ's names where it has them. Only masters report waiting."""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.broker.transactions.checks import Checks
from aerobee.broker.transactions.ends import Ends
from aerobee.broker.transactions.pending import PendingHalves
from aerobee.runtime.clock import Clock
from aerobee.runtime.metrics.families import (
    OTHER,
    AnyFamily,
    Family,
    HistogramFamily,
    counter,
    gauge,
    one_counter,
    one_gauge,
)


class TransactionFigures:
    """On the loop."""

    def __init__(
        self,
        pending: PendingHalves,
        aside: PendingHalves,
        ends: Ends,
        checks: Checks,
        clock: Clock,
        *,
        topics_max: int,
    ) -> None:
        """Topics above `topics_max`, those with the fewest messages, are added up."""
        self._pending = pending
        self._aside = aside
        self._ends = ends
        self._checks = checks
        self._clock = clock
        self._topics_max = topics_max

    def families(self) -> list[AnyFamily]:
        """Unknown values are absent."""
        ends, checks = self._ends, self._checks
        halves = gauge("rocketmq_half_messages", "Messages whose transaction is open.", "topic")
        aside = age_s = None
        if ends.is_ready:
            self._add(halves, self._pending.by_topic)
            aside, since_ms = len(self._aside), checks.oldest_since_ms
            age_s = 0 if since_ms is None else max(0, self._clock.now_ms() - since_ms) / 1_000
        commits = counter("rocketmq_commit_messages_total", "Committed messages.", "topic")
        self._add(commits, ends.committed)
        rollbacks = counter("rocketmq_rollback_messages_total", "Messages rolled back.", "topic")
        self._add(rollbacks, ends.rolled_back)
        latency = HistogramFamily(
            "rocketmq_finish_message_latency",
            "Seconds from when a message was made until it was committed.",
        )
        latency.add(ends.latency_s.copy())
        return [
            halves,
            commits,
            rollbacks,
            latency,
            one_gauge(
                "aerobee_open_transaction_age_seconds",
                "How long the oldest open transaction has waited, as of the last scan.",
                age_s,
            ),
            one_gauge(
                "aerobee_transactions_set_aside",
                "Transactions that wait for an operator.",
                aside,
            ),
            one_counter(
                "aerobee_transaction_checks_total",
                "How often a producer was asked how a transaction ends.",
                ends.checked,
            ),
            one_counter(
                "aerobee_transaction_checks_unasked_total",
                "How often a scan found no producer of a topic.",
                checks.unasked,
            ),
        ]

    def _add(self, family: Family, by_topic: Mapping[str, int]) -> None:
        found = {OTHER: 0}
        most_first = sorted(by_topic.items(), key=lambda each: -each[1])
        for number, (topic, count) in enumerate(most_first):
            name = topic if number < self._topics_max else OTHER
            found[name] = found.get(name, 0) + count
        for name, count in found.items():
            family.add(count, name)
