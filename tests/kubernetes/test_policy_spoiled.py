"""Nothing that the policy asks can be broken unseen: each check is shown manifests that are right
but for one thing, and must say so.
"""

from __future__ import annotations

import pytest

from tests.kubernetes.conftest import Overlay
from tests.kubernetes.policy.checks import CHECKS, Check
from tests.kubernetes.spoiled.away import AVAILABILITY
from tests.kubernetes.spoiled.commands import COMMANDS
from tests.kubernetes.spoiled.names import NAMES
from tests.kubernetes.spoiled.security import SECURITY
from tests.kubernetes.spoiled.served import SERVING
from tests.kubernetes.spoiled.talk import NETWORK
from tests.kubernetes.spoiled.ways import Spoil

SPOILED = [*SECURITY, *NAMES, *SERVING, *AVAILABILITY, *COMMANDS, *NETWORK]


def test_every_check_is_tried() -> None:
    assert {check for check, _ in SPOILED} == set(CHECKS)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("check", "spoil"),
    SPOILED,
    ids=[f"{check.__name__}-{at}" for at, (check, _) in enumerate(SPOILED)],
)
def test_what_is_broken_is_seen(overlay: Overlay, check: Check, spoil: Spoil) -> None:
    whole = overlay("namespace+ha+audit")
    before = set(check(whole.copy()))
    spoil(whole)
    assert set(check(whole)) - before
