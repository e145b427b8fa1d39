"""A bounded part of the fuzzing campaign; `python -m tests.rpc.core.fuzz` runs a million."""

from __future__ import annotations

from tests.rpc.core.fuzz import ServerFuzz

STREAMS = 1_500


async def test_no_mutated_stream_makes_anything_escape() -> None:
    assert await ServerFuzz().campaign(STREAMS, first_seed=1) == []
