"""How a listener is called, and what its results mean."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from aerobee.client_core.defaults import check_whole_number
from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.answers import Answer, Batch
from aerobee.consumer_client.retry_schedule import RetryPolicy
from aerobee.runtime.errors import InvalidArgument


class ConsumeResult(StrEnum):
    """What a listener returns about the messages it was given."""

    SUCCESS = "success"
    RETRY_LATER = "retry_later"
    """Handle them again: after a delay or, with ordered handling, after the queue was suspended."""


class Exhausted(StrEnum):
    """What happens to messages that failed as often as the retry policy allows."""

    KEEP_RETRYING = "keep_retrying"
    SKIP = "skip"
    """Count them as done: the offset moves past them and they are not delivered again."""


class Ordering(StrEnum):
    """In which order a queue's messages are handled."""

    CONCURRENT = "concurrent"
    """Several at a time; a failed message does not hold up the others."""
    ORDERLY = "orderly"
    """One after another within each queue; a failed message suspends its queue."""


OrderBy = Literal["key"] | Callable[[ReceivedMessage], str | None]
"""By what messages are handled in order: the sharding key, or what a function makes of a message.
None as a key: in no order."""

Messages = Sequence[ReceivedMessage]

Result = ConsumeResult | Answer | None

Listener = Callable[[Batch], Result | Awaitable[Result]]
"""Called with 1 to `consume_batch_max` messages of one queue, in order. Returning None or SUCCESS
finishes them; after RETRY_LATER, `RetryLater` or any exception they are handled again; `Reject`,
returned or raised, makes them dead letters. See `Batch` for answers that differ by message."""

OnExhausted = Callable[[Messages, int], Exhausted | Awaitable[Exhausted]]
"""Called with messages and the number of their failures, at the last allowed failure and at each
later one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerOptions:
    """How the listener is called."""

    ordering: Ordering = Ordering.CONCURRENT
    max_concurrency: int = 20
    """Concurrent calls, over all queues."""
    consume_batch_max: int = 1
    """Most messages in one call."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    suspend_ms: int | None = None
    """How long a queue pauses after each failure when handled in order; None: as its broker says,
    else 1 s after the first failure, then twice as long each time, up to 1 min."""
    on_exhausted: OnExhausted | None = None
    """Decides after `retry.attempts_max` failures; None keeps retrying."""
    order_by: OrderBy | None = None
    """Within a queue, one message of a key after another, and keys beside each other."""
    handle_timeout: float | None = None
    """Seconds after which a call is cancelled, and counts as failed; None: never."""
    gets_batches: bool = False
    """It is given a `Batch` even if there is one message."""

    def __post_init__(self) -> None:
        check_whole_number("max_concurrency", self.max_concurrency, minimum=1)
        check_whole_number("consume_batch_max", self.consume_batch_max, minimum=1)
        if self.suspend_ms is not None:
            check_whole_number("suspend_ms", self.suspend_ms, minimum=0)
        try:
            object.__setattr__(self, "ordering", Ordering(self.ordering))
        except ValueError:
            raise InvalidArgument(
                f"ordering must be one of {', '.join(Ordering)}, not {self.ordering!r}"
            ) from None
        self._check_order()
        timeout = self.handle_timeout
        if timeout is not None and (not isinstance(timeout, int | float) or not timeout > 0):
            raise InvalidArgument(f"handle_timeout must be seconds above 0, not {timeout!r}")
        if self.on_exhausted is not None:
            check_callback("on_exhausted", self.on_exhausted, "the messages and their failures", 2)

    def _check_order(self) -> None:
        if self.order_by is None:
            return
        if self.order_by != "key":
            check_callback("order_by", self.order_by, "a message", 1)
        if self.ordering is Ordering.ORDERLY:
            raise InvalidArgument(
                "order_by handles each key in order, ORDERLY each queue: choose one of them"
            )

    @property
    def in_order(self) -> bool:
        """Whether a message that failed holds up others."""
        return self.ordering is Ordering.ORDERLY or self.order_by is not None


def check_callback(name: str, callback: object, given: str, count: int) -> None:
    """Raises InvalidArgument unless it can be called with this many arguments and returns an
    answer."""
    if not callable(callback):
        raise InvalidArgument(
            f"{name} is {type(callback).__name__}, not a function; it is called with {given}"
        )
    if inspect.isgeneratorfunction(callback) or inspect.isasyncgenfunction(callback):
        raise InvalidArgument(
            f"{name} is a generator, whose body would never run; write it without yield"
        )
    try:
        # A decorator may add arguments to those with which it is called.
        signature = inspect.signature(callback, follow_wrapped=False)
    except ValueError:
        return
    try:
        signature.bind(*range(count))
    except TypeError:
        raise InvalidArgument(
            f"{name} cannot take the arguments that it is given: it is called with {given}"
        ) from None
