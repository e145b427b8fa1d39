"""A healthy cluster that is never at rest: no audit of it finds what is not true."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.offset_audit.damages.motion import Outcome, audits_in_motion

pytestmark = pytest.mark.long

AUDITS = 6
"""One for each disturbance; `make audit-motion` makes as many as one likes."""


def test_no_audit_of_a_cluster_in_motion_finds_what_is_not_true(tmp_path: Path) -> None:
    async def outcomes() -> list[Outcome]:
        return [one async for one in audits_in_motion(tmp_path, AUDITS, seed=36)]

    found = asyncio.run(outcomes())
    assert len({one.disturbance for one in found}) == AUDITS
    assert [one for one in found if one.untrue] == []
