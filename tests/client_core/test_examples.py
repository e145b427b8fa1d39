"""The examples of the shared client documentation run as they stand, but for the address."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import aerobee.client_core as client_core
from aerobee import AdminClient
from aerobee.client_core import ClusterConnection, MessageQueue, Offsets
from tests.support.examples import check_doctests, example_blocks, modules_of, run_async

if TYPE_CHECKING:
    from tests.support.fake_cluster import FakeNameserver

BLOCKS = dict(example_blocks("aerobee.client_core"))


def test_small_examples_hold() -> None:
    modules = [*modules_of("aerobee.client_core"), *modules_of("aerobee.cluster_view")]
    assert sum(check_doctests(module) for module in modules) >= 5


@pytest.mark.parametrize("where", BLOCKS)
async def test_an_example_runs(
    where: str, nameserver: FakeNameserver, served: ClusterConnection
) -> None:
    await Offsets(served).reset("billing", {MessageQueue("orders", "broker-a", 0): 0})
    code = BLOCKS[where].replace("127.0.0.1:8081", nameserver.address)
    names = {name: getattr(client_core, name) for name in client_core.__all__}
    await run_async(code, {**names, "AdminClient": AdminClient})


def test_the_main_classes_have_examples() -> None:
    examples = {where.rpartition(".")[2] for where in BLOCKS}
    assert examples >= {"AdminClient", "ClusterConnection"}
