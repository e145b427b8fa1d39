"""Plain functions as listeners: each call in a thread, so that blocking code stops nothing else.

Owns: the threads, from `open` to `close`. A thread cannot be ended from outside: a call whose queue
was taken away continues, and its result is ignored.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from aerobee.consumer_client.answers import Batch
from aerobee.consumer_client.listener import Listener, Result
from aerobee.consumer_client.listener_shape import check_listener


class ListenerThreads:
    """An asynchronous listener made of a plain function."""

    def __init__(self, listener: Listener, count: int) -> None:
        self._listener = listener
        self._count = count
        self._executor: ThreadPoolExecutor | None = None

    def open(self) -> None:
        """At the start: threads do not survive a fork."""
        self._executor = ThreadPoolExecutor(self._count, thread_name_prefix="aerobee-listener")

    def close(self) -> None:
        """Start no further call."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, messages: Batch) -> Result:
        assert self._executor is not None, "listeners are called after the start"
        context = contextvars.copy_context()
        call = partial(context.run, _call, self._listener, messages)
        answer = await asyncio.get_running_loop().run_in_executor(self._executor, call)
        return await answer if isinstance(answer, Awaitable) else answer


def _call(listener: Listener, messages: Batch) -> Result | Awaitable[Result]:
    try:
        return listener(messages)
    except StopIteration as error:
        raise RuntimeError("the listener raised StopIteration") from error


def threads_for(listener: Listener, count: int, *, wanted: bool) -> ListenerThreads | None:
    """None: threads are not wanted, or it is an `async` function, as far as can be seen without
    calling it. Raises InvalidArgument: it cannot be a listener."""
    check_listener(listener)
    is_async = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004
    )
    return ListenerThreads(listener, count) if wanted and not is_async else None
