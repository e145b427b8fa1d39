"""The answers of the health port as metrics, from the process's start to its end."""

from __future__ import annotations

from aerobee.runtime.clock import Clock
from aerobee.runtime.health import Health, Question
from aerobee.runtime.metrics.families import Gathered, gauge


async def gather_health(cluster: str, node_type: str, health: Health, clock: Clock) -> Gathered:
    """1 for each question answered with yes, and the time here."""
    family = gauge(
        "aerobee_health", "1 if the health port answers yes to this question.", "question"
    )
    for question in Question:
        family.add(not health.why_not(question), question.value)
    now = gauge(
        "aerobee_clock_timestamp_seconds", "This machine's clock, in seconds since 1970 (UTC)."
    )
    now.add(clock.now_ms() / 1_000)
    return Gathered({"cluster": cluster, "node_type": node_type}, [family, now])
