"""Waiting for what other tasks, threads or processes do: polls often, gives up late.

How long a wait may take is not a promise, unless a test passes its own time; so it is longer than
any machine needs, and a timeout is a real failure.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE_S = 60.0
"""Half of pytest's timeout for a test."""
_ASK_FIRST_S = 0.001
_ASK_EVERY_S = 0.01


async def until(
    condition: Callable[..., Any],
    what: str = "",
    *,
    timeout_s: float = PATIENCE_S,
    account: Callable[[], Any] | None = None,
) -> Any:
    """The first true value of a condition. After the timeout, AssertionError with `what` was
    awaited and what `account` reports of everything else. Both may be sync or async."""
    try:
        async with asyncio.timeout(timeout_s) as patience:
            pause_s = _ASK_FIRST_S
            while not (outcome := await _value_of(condition)):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _ASK_EVERY_S)
            return outcome
    except TimeoutError:
        if not patience.expired():
            raise
    told = f"\n{await _value_of(account)}" if account is not None else ""
    raise AssertionError(_complaint(condition, what, timeout_s) + told)


def wait_until(
    condition: Callable[..., Any], what: str = "", *, timeout_s: float = PATIENCE_S
) -> Any:
    """The same in a thread without an event loop, for sync conditions."""
    deadline_s = time.monotonic() + timeout_s
    while not (outcome := condition()):
        assert time.monotonic() < deadline_s, _complaint(condition, what, timeout_s)
        time.sleep(_ASK_EVERY_S)
    return outcome


async def _value_of(call: Callable[..., Any]) -> Any:
    outcome = call()
    return await outcome if isinstance(outcome, Awaitable) else outcome


def _complaint(condition: Callable[..., Any], what: str, timeout_s: float) -> str:
    if not what:
        try:
            what = inspect.getsource(condition).strip()
        except (OSError, TypeError):
            what = repr(condition)
    return f"not within {timeout_s:g} s: {what}"
