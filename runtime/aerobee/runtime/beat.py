"""Periodic work of an idle process runs at the same moments: waking up costs more than the work."""

from __future__ import annotations

from math import floor


def next_beat(now_s: float, period_s: float) -> float:
    """The next time that is a multiple of the period, at least half a period from now.

    For work that must be done about as often as its period says. A timer that fires a little early
    does not make it run twice.

    >>> next_beat(7.3, 1.0), next_beat(7.6, 1.0), next_beat(7.999, 1.0)
    (8.0, 9.0, 9.0)
    """
    return (floor(now_s / period_s + 0.5) + 1) * period_s
