"""Sending back under crashes, fail-overs with a lost tail, power cuts, full disks, lost answers and
dying members: never lost, never twice, attempts never back."""

from __future__ import annotations

import asyncio
from functools import partial

from tests.support.send_back_scene import Broken, SendBackScene

SEEDS = 150
STEPS = 120


async def run_all(make: partial[SendBackScene] | type[SendBackScene], seeds: range) -> None:
    for seed in seeds:
        try:
            await make(seed).run(STEPS)
        except Broken as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
        await asyncio.sleep(0)


async def test_a_failed_message_comes_again_once_and_ends_as_one_dead_letter() -> None:
    await run_all(SendBackScene, range(SEEDS))


async def test_so_it_is_when_power_cuts_take_what_was_not_flushed() -> None:
    await run_all(partial(SendBackScene, cuts_power=True), range(SEEDS))
