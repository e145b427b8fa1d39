"""docs/limits.md promises what the tests of costly requests measure."""

from __future__ import annotations

from pathlib import Path

from tests.support.refusals import (
    ANSWERED_STEP_S_MAX,
    MEMORY_BYTES_MAX,
    MIB,
    REFUSED_STEP_S_MAX,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "limits.md"


def test_the_price_of_a_request_is_the_one_that_is_measured() -> None:
    promise = " ".join(PAGE.read_text("utf-8").split())
    for price in (
        f"at most {REFUSED_STEP_S_MAX:g} s of the server's CPU time in one piece",
        f"in pieces of at most {ANSWERED_STEP_S_MAX:g} s",
        f"grow by more than {MEMORY_BYTES_MAX // MIB} MiB",
    ):
        assert price in promise
