"""A bounded part of the campaign; `python -m tests.grpc_core.fuzz_client` runs a million."""

from __future__ import annotations

from tests.grpc_core.fuzz_client import campaign

STREAMS = 1_500


async def test_no_mutated_answer_makes_anything_escape_or_a_call_hang() -> None:
    assert await campaign(STREAMS, first_seed=1) == []
