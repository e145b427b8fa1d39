"""The answers of the health port as figures: there from the process's first moment to its last."""

from __future__ import annotations

from aerobee.runtime.health import Health, Question
from aerobee.runtime.metrics.families import Gathered, gauge


async def gather_health(cluster: str, node_type: str, health: Health) -> Gathered:
    """1 for each question that is answered with yes."""
    family = gauge(
        "aerobee_health", "1 if the health port answers yes to this question.", "question"
    )
    for question in Question:
        family.add(not health.why_not(question), question.value)
    return Gathered({"cluster": cluster, "node_type": node_type}, [family])
