"""A short part of the campaign against all ports; `make fuzz-ports` sends 2,000,000 requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.port_fuzz.campaign import Plan, attack
from tests.port_fuzz.cluster import Shape
from tests.port_fuzz.doors import Kind

REQUESTS = 3_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.thorough
def test_a_cluster_under_attack_serves_and_nothing_breaks(tmp_path: Path) -> None:
    """How long others wait is for the campaign, not for a machine that runs other tests."""
    plan = Plan(requests=REQUESTS, callers=1, level_s=1.0, rest_s=1.0)
    report = attack(tmp_path, Shape(access=True, tls=True, replica_sets=1), plan)
    slow = [told for told in report.told if "above its level" in told]
    assert [told for told in report.told if told not in slow] == []
    assert report.tally.messages >= REQUESTS
    assert report.tally.by_kind.keys() == set(Kind)
    assert {"OK", "UNAUTHENTICATED", "PERMISSION_DENIED"} <= report.tally.answers.keys()
    assert sum(report.frames.values()) > 0
