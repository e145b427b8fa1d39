"""The short form of `make torture`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.kill_broker import torture


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_broker_killed_under_load_keeps_every_acknowledged_message(tmp_path: Path) -> None:
    figures = await torture(rounds=4, seed=20_261_121, folder=tmp_path / "data")
    assert figures.acknowledged > 100
