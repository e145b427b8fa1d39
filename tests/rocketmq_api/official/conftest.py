"""Which clients the cases run with."""

from __future__ import annotations

import pytest

from tests.grpc_core.interop.programs import Program
from tests.rocketmq_api.official.programs import PROGRAMS


@pytest.fixture(
    # `make test` takes the two that start quickest, `make clients-test` all.
    params=[
        pytest.param(one, marks=() if one in ("python", "node") else pytest.mark.long)
        for one in PROGRAMS
    ]
)
def program(request: pytest.FixtureRequest) -> Program:
    program = PROGRAMS[request.param]
    if program.missing:
        pytest.skip(program.missing)
    return program
