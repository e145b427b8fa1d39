"""Which clients the scenarios run with, and where."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rocketmq_remoting.official.programs import PROGRAMS
from tests.rocketmq_remoting.official.scene import Scene
from tests.rpc.core.interop.programs import Program
from tests.support.local_up import Up, running


@pytest.fixture(
    # `make test` takes the newest, `make clients-test` all.
    params=[
        pytest.param(one, marks=() if one == "java-5.3.3" else pytest.mark.long) for one in PROGRAMS
    ]
)
def program(request: pytest.FixtureRequest) -> Program:
    program = PROGRAMS[request.param]
    if program.missing:
        pytest.skip(program.missing)
    return program


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Its brokers soon ask how open transactions end, and ask until they are told."""
    rules = {"timeout_ms": 100, "check_interval_ms": 200, "checks_max": 1_000}
    settings = [("--broker-set", f"transactions.{name}={value}") for name, value in rules.items()]
    folder = tmp_path_factory.mktemp("cluster")
    with running(folder, "--brokers", "2", *itertools.chain(*settings)) as up:
        yield up


@pytest.fixture
def scene(program: Program, up: Up, tmp_path: Path) -> Scene:
    return Scene(program, up, tmp_path)
