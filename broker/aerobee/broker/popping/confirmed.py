"""Waiting for a journal's writer beside others that wait for it."""

from __future__ import annotations

import asyncio
from typing import Any


async def until_confirmed(done: Any) -> None:
    """`done`: the writer's future, which goes on when this is cancelled; None: there is nothing to
    wait for. Raises AerobeeError: what was written does not count."""
    if done is not None:
        await asyncio.wait((done,))
        done.result()
