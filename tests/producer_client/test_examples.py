"""The examples of the producer's documentation run as they stand, but for the address."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import aerobee.producer_client as producer_client
from aerobee.producer_client import encoder
from tests.support.compiled_form import replaces_what_is_compiled
from tests.support.examples import check_doctests, example_blocks, modules_of, run_async

if TYPE_CHECKING:
    from tests.support.fake_cluster import FakeBroker, FakeNameserver

BLOCKS = dict(example_blocks("aerobee.producer_client"))


@replaces_what_is_compiled(encoder)
def test_small_examples_hold() -> None:
    assert sum(check_doctests(module) for module in modules_of("aerobee.producer_client")) >= 10


@pytest.mark.parametrize("where", BLOCKS)
async def test_an_example_runs(
    where: str, nameserver: FakeNameserver, broker_a: FakeBroker
) -> None:
    code = BLOCKS[where].replace("127.0.0.1:8081", nameserver.address)
    names = vars(producer_client)
    if "async with" in code:
        await run_async(code, names)
    else:
        await asyncio.to_thread(exec, code, dict(names))
    assert broker_a.bodies("orders") == [b"{}"]


def test_the_main_classes_have_examples() -> None:
    assert {where.rpartition(".")[2] for where in BLOCKS} >= {"Producer", "BlockingProducer"}
