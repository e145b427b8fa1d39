"""A wait ends with the first true value, or says what it waited for."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.waiting import until, wait_until

TESTS = Path(__file__).parent
SHORT_S = 0.02


async def test_the_first_true_value_is_what_one_gets() -> None:
    answers = iter([0, None, "", "done"])
    assert await until(lambda: next(answers)) == "done"

    async def later() -> int:
        await asyncio.sleep(0)
        return 7

    assert await until(later) == 7
    assert wait_until(lambda: 8) == 8


async def test_a_wait_that_runs_out_says_for_what_and_how_everything_is() -> None:
    with pytest.raises(AssertionError, match=r"not within 0.02 s: a master\nall is quiet"):
        await until(lambda: False, "a master", timeout_s=SHORT_S, account=lambda: "all is quiet")
    with pytest.raises(AssertionError, match="lambda: SHORT_S < 0"):
        wait_until(lambda: SHORT_S < 0, timeout_s=SHORT_S)


async def test_a_condition_that_hangs_ends_with_the_wait() -> None:
    with pytest.raises(AssertionError, match="an answer"):
        await until(asyncio.Event().wait, "an answer", timeout_s=SHORT_S)


async def test_a_condition_that_fails_by_itself_ends_the_wait_with_its_error() -> None:
    async def fails() -> bool:
        raise TimeoutError("of the call")

    with pytest.raises(TimeoutError, match="of the call"):
        await until(fails)


def test_there_is_no_second_helper() -> None:
    made = re.compile(r"^(?:async )?def (?:until|wait_until|eventually)\(", re.MULTILINE)
    found = [path for path in TESTS.rglob("*.py") if made.search(path.read_text("utf-8"))]
    assert found == [TESTS / "support" / "waiting.py"]
