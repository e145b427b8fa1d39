"""An event loop on a thread of its own, so that brokers serve while a test waits for Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

CALL_TIMEOUT_S = 60.0


class LoopThread:
    """Runs coroutines for a test that has no loop; use it in a `with`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-loop")

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result, once it is done."""
        done = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return done.result(CALL_TIMEOUT_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
