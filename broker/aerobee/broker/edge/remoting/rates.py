"""How much came in and went out in the last minute, hour and day, as RocketMQ's tools ask.

Owns: readings of the broker's counters from the past. A name that was not counted at the beginning
of a span counts from 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from aerobee.broker.observe.metrics.traffic import Traffic

SAMPLE_S: Final = 10.0
_SPANS: Final = {"Minute": (SAMPLE_S, 60.0), "Hour": (600.0, 3_600.0), "Day": (3_600.0, 86_400.0)}
"""How often each is read, and how far back it goes."""
BROKER_PUT: Final = "BROKER_PUT_NUMS"
BROKER_GET: Final = "BROKER_GET_NUMS"
_GROUP_SEPARATOR: Final = "@"

Counts = dict[tuple[str, str], int]
"""By statistic and key, as Apache names them."""


class _Reading(NamedTuple):
    at_s: float
    counts: Counts


class Rates:
    """On the loop."""

    def __init__(self, traffic: Traffic, cluster: str, now_s: Callable[[], float]) -> None:
        self._traffic = traffic
        self._cluster = cluster
        self._now_s = now_s
        first = _Reading(now_s(), {})
        self._readings = {name: deque([first]) for name in _SPANS}

    def sample(self) -> None:
        """Called every SAMPLE_S seconds."""
        reading = _Reading(self._now_s(), self._counts())
        for name, (interval_s, back_s) in _SPANS.items():
            readings = self._readings[name]
            if reading.at_s - readings[-1].at_s >= interval_s - SAMPLE_S / 2:
                readings.append(reading)
            while len(readings) > 1 and reading.at_s - readings[1].at_s >= back_s:
                readings.popleft()

    def of(self, statistic: str, key: str) -> dict[str, tuple[int, float]] | None:
        """The count and its seconds by span; None: nothing of this name was ever counted."""
        name = statistic, self._cluster if statistic in (BROKER_PUT, BROKER_GET) else key
        now = self._counts().get(name)
        if now is None:
            return None
        found = {}
        for span, readings in self._readings.items():
            before = readings[0].counts.get(name, 0)
            # A name that gave its place to others and came back begins anew.
            counted = now - before if now >= before else now
            found[span] = (counted, self._now_s() - readings[0].at_s)
        return found

    def total(self, statistic: str) -> int:
        """Since the broker's folder was opened."""
        return self._counts().get((statistic, self._cluster), 0)

    def _counts(self) -> Counts:
        counts: Counts = {(BROKER_PUT, self._cluster): 0, (BROKER_GET, self._cluster): 0}
        for topic, came in self._traffic.incoming():
            counts["TOPIC_PUT_NUMS", topic] = came.messages
            counts["TOPIC_PUT_SIZE", topic] = came.bytes
            counts[BROKER_PUT, self._cluster] += came.messages
        for reader, went in self._traffic.outgoing():
            key = f"{reader.topic}{_GROUP_SEPARATOR}{reader.group}"
            counts["GROUP_GET_NUMS", key] = went.messages
            counts["GROUP_GET_SIZE", key] = went.bytes
            counts[BROKER_GET, self._cluster] += went.messages
        return counts
