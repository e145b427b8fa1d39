"""Tasks that live and end together, as those of one stream do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aerobee.runtime.errors import MqError


async def run_together(
    main: Coroutine[Any, Any, None], **others: Coroutine[Any, Any, None]
) -> None:
    """Until `main` returns or any of them raises; then none of them runs any more.

    Raises what was raised first, as it is; but a cancellation that meets a failure is not
    forgotten, as a task group forgets it: a caller that takes it for an ordinary failure, and tries
    again, would never end.
    """
    caller = asyncio.current_task()
    assert caller is not None, "called by a task"
    cancelled_before = caller.cancelling()
    has_ended = False
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task, name=name) for name, task in others.items()]
            await main
            has_ended = True
            for task in running:
                task.cancel()
    except BaseExceptionGroup as errors:
        # Once `main` has ended, the group itself may have left a cancellation behind (Python 3.11).
        if not has_ended and caller.cancelling() > cancelled_before:
            raise asyncio.CancelledError from None
        raise _first(errors) from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """A bug rather than an error of the stream, which may follow from it."""
    flat: list[BaseException] = []
    waiting: list[BaseException] = [errors]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(error.exceptions)
        else:
            flat.append(error)
    return next((error for error in flat if not isinstance(error, MqError)), flat[0])
