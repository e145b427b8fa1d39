"""Tasks that live and end together, such as those of one stream, and what their groups raise."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from aerobee.runtime.errors import AerobeeError, Unreachable

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


async def run_together(main: Coroutine[Any, Any, T], **others: Coroutine[Any, Any, None]) -> T:
    """Returns what `main` returns, unless any of them raises first; afterwards none of them is
    running.

    Raises the first cause unchanged. But a cancellation that coincides with a failure is not lost,
    as it is in a task group: a caller that takes it for an ordinary failure and tries again would
    never end.
    """
    caller = asyncio.current_task()
    assert caller is not None, "called by a task"
    cancelled_before = caller.cancelling()
    has_ended = False
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task, name=name) for name, task in others.items()]
            result = await main
            has_ended = True
            for task in running:
                task.cancel()
    except BaseExceptionGroup as errors:
        # After `main` has ended, the group itself may have left a cancellation behind (Python
        # 3.11).
        if not has_ended and caller.cancelling() > cancelled_before:
            raise asyncio.CancelledError from None
        raise first_error(errors) from None
    return result


async def run_all(named: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Runs all of them at once, each in a task with its name. Raises as a task group. For modules
    that are compiled, and may not have `async with`."""
    async with asyncio.TaskGroup() as group:
        for name, task in named.items():
            group.create_task(task, name=name)


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The cause rather than its consequences in other tasks: first a bug, then a peer's answer,
    then a broken stream."""
    flat: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(error.exceptions)
        else:
            flat.append(error)
    return min(
        flat, key=lambda error: isinstance(error, AerobeeError) + isinstance(error, Unreachable)
    )


def first_leaf(group: BaseExceptionGroup[E]) -> E:
    """The first exception that is not itself a group: in a task group's, the one that came
    first."""
    error: E | BaseExceptionGroup[E] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def sole_cause(error: Exception) -> Exception:
    """What a group consists of if all of it has the same type, else the group itself; `error` if it
    is not a group."""
    if not isinstance(error, ExceptionGroup):
        return error
    inner = [sole_cause(one) for one in error.exceptions]
    return inner[0] if len({type(one) for one in inner}) == 1 else error
