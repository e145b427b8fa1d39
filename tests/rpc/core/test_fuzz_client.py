"""A bounded part of the campaign; `python -m tests.rpc.core.fuzz_client` runs a million."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tests.rpc.core.fuzz_client import ClientFuzz

STREAMS = 750
"""On each event loop, with seeds of its own: nothing of a stream comes from a socket."""


@pytest.mark.thorough
async def test_no_mutated_answer_makes_anything_escape_or_a_call_hang() -> None:
    is_uvloop = isinstance(asyncio.get_running_loop(), uvloop.Loop)
    found = await ClientFuzz().campaign(STREAMS, first_seed=1 + STREAMS * is_uvloop)
    assert found == []
