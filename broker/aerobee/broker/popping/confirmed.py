"""Waiting for a journal writer's future that others wait for, too."""

from __future__ import annotations

import asyncio
from typing import Any


async def until_confirmed(done: Any) -> None:
    """`done`: the writer's future, which continues when this is cancelled; None: there is nothing
    to wait for. Raises AerobeeError: what was written is not in effect."""
    if done is not None:
        await asyncio.wait((done,))
        done.result()
