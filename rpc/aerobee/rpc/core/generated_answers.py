"""The answers of a handler that is an async generator."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol


class Answering(Protocol):
    async def send(self, answer: Any) -> None: ...


async def send_each(answers: AsyncGenerator[Any, None], call: Answering) -> None:
    """Send what the generator yields, and close it even if the call is cancelled."""
    async with aclosing(answers):
        async for answer in answers:
            await call.send(answer)
