"""One call of a listener, and what its answer means for each of its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.answers import Answer, Reject, RetryLater
from aerobee.consumer_client.listener import ConsumeResult, Result
from aerobee.consumer_client.listener_shape import illegal_result, said
from aerobee.consumer_client.process_queue import Entry
from aerobee.consumer_client.push_queue import PushQueue
from aerobee.consumer_client.sending_back import reason_of

ANSWERS = (ConsumeResult, Answer)
"""What is not awaited."""


class Work(NamedTuple):
    queue: PushQueue
    entries: list[Entry[ReceivedMessage]]
    """Empty: the waiting ones, one after another; see `_run`."""
    failures: int


@dataclass(slots=True)
class ListenerCounters:
    """Since the consumer was started."""

    handled: int = 0
    failed_calls: int = 0
    skipped: int = 0
    sent_back: int = 0


class Abandoned(Exception):
    """The queue was taken away while its listener was awaiting something."""


async def awaited(queue: PushQueue, outcome: Awaitable[object], limit_s: float | None) -> Result:
    """The rest of an asynchronous listener: ended early if its queue is taken away, or after
    `limit_s`.

    Raises Abandoned, TimeoutError, ResultIllegal, and what the listener raises.
    """
    scope = asyncio.timeout(None)
    try:
        async with scope:
            queue.enter(scope)
            result = await (outcome if limit_s is None else _within(outcome, limit_s))
    except TimeoutError:
        if scope.expired():
            raise Abandoned from None
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("the listener cancelled itself") from None
    finally:
        queue.leave(scope)
    if result is not None and not isinstance(result, ANSWERS):
        raise illegal_result(result)
    return result


async def _within(outcome: Awaitable[object], limit_s: float) -> object:
    scope = asyncio.timeout(limit_s)
    try:
        async with scope:
            return await outcome
    except TimeoutError:
        if scope.expired():
            raise TimeoutError(f"the call took longer than {limit_s:g} s") from None
        raise


def apart(
    work: Work, answers: Mapping[int, Answer], *, in_order: bool, is_failed: bool
) -> tuple[list[tuple[Work, Answer]], Work]:
    """Messages with an answer of their own, and the rest.

    In order, only rejected ones go alone: the first one that comes again brings back all after
    it. If the call failed, all come again.
    """
    parts: list[tuple[Work, Answer]] = []
    rest: list[Entry[ReceivedMessage]] = []
    again: list[Entry[ReceivedMessage]] = []
    later: Answer | None = None
    for index, entry in enumerate(work.entries):
        answer = answers.get(index)
        if isinstance(answer, Reject) or (answer is not None and not in_order):
            parts.append((work._replace(entries=[entry]), answer))
        elif later is not None or (answer is not None and not is_failed):
            later = later or answer
            again.append(entry)
        else:
            rest.append(entry)
    if later is not None:
        parts.append((work._replace(entries=again), later))
    return parts, work._replace(entries=rest)


def is_answer(error: Exception | None) -> bool:
    """Whether the listener chose to fail."""
    return error is None or isinstance(error, Answer)


def described(error: Exception | None) -> tuple[str, str]:
    """Event and reason of a log line."""
    if error is None:
        return "listener asked for a retry", "it returned RETRY_LATER"
    if isinstance(error, RetryLater):
        return "listener asked for a retry", reason_of(error)[1]
    if isinstance(error, Reject):
        return "listener rejected a message", reason_of(error)[1]
    return "listener failed", said(error)
