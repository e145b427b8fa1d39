"""A bounded part of the fuzzing campaign; `python -m tests.remoting_core.fuzz` runs a million."""

from __future__ import annotations

import pytest

from tests.remoting_core.fuzz import campaign


def test_no_mutated_frame_makes_anything_escape() -> None:
    assert campaign(frames=4_000, headers=4_000, first_seed=1) == []


@pytest.mark.thorough
def test_no_mutated_frame_of_many_makes_anything_escape() -> None:
    assert campaign(frames=100_000, headers=50_000, first_seed=1_000_000) == []
