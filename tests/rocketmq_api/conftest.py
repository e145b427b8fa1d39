"""Messages as official clients make them, and how a broker stores them."""

from __future__ import annotations

import pytest

from tests.support.golden_log import GOLDEN_NAMES, GoldenLog


@pytest.fixture(scope="session", params=GOLDEN_NAMES)
def golden_log(request: pytest.FixtureRequest) -> GoldenLog:
    return GoldenLog(request.param)
