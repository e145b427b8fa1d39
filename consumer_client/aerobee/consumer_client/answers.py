"""What a listener may answer besides success, returned or raised."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from math import ceil, isfinite

from aerobee.client_core.message import ReceivedMessage
from aerobee.runtime.errors import InvalidArgument

AFTER_S_MAX = 10 * 365 * 24 * 3_600
"""Ten years, as for delayed messages."""
FAILED = "failed"
"""The kind of an answer that the listener did not choose."""


class Answer(Exception):
    """What a listener says about messages that it did not finish.

    It is an exception so that code deep inside a listener can raise it. Returning it from the
    listener means the same.
    """

    kind: str
    """For metrics."""


class RetryLater(Answer):
    """Handle the messages again later. It counts as an attempt, as any failure.

    Args:
        reason: for the log and, if it was the last attempt, for the dead letter.
        after: how long they wait; a number is seconds. None: as the group is configured.

    Raises:
        InvalidArgument: `after` is negative, longer than ten years, or no time.

    >>> RetryLater("the bank is closed", after=300).after_ms
    300000
    """

    kind = "retry_later"

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_ms: int | None = None if after is None else milliseconds_of("after", after)
        """Milliseconds; None: as the group is configured."""


class Reject(Answer):
    """The messages can never be handled: they become dead letters at once.

    Args:
        reason: stored with the dead letter. If this was raised, the place and the exception that
            it was raised from are stored as well.

    >>> Reject("no such customer").reason
    'no such customer'
    """

    kind = "reject"
    _adds_place = True

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Batch(list[ReceivedMessage]):
    """The messages of one call of a listener, in order, with an answer of its own for each.

    A listener with `consume_batch_max` above 1, or whose parameter has this type, is called with a
    batch. What the call returns or raises is the answer for the messages without an answer of their
    own.

    If messages are handled in order, one that comes again later brings back the ones after it in
    its batch.
    """

    def __init__(self, messages: Iterable[ReceivedMessage] = ()) -> None:
        super().__init__(messages)
        self.answers: dict[int, Answer] = {}
        """By index."""

    def reject(self, index: int, reason: str) -> None:
        """The message at `index` becomes a dead letter. Raises IndexError."""
        self._answer(index, Reject(reason))

    def retry_later(
        self, index: int, reason: str = "", *, after: float | timedelta | None = None
    ) -> None:
        """The message at `index` is handled again later; see `RetryLater`. Raises IndexError,
        InvalidArgument."""
        self._answer(index, RetryLater(reason, after=after))

    def answer(self, index: int, error: Exception) -> None:
        """Handling the message at `index` raised this: `Reject` and `RetryLater` mean what they
        say, anything else means a retry as the group is configured. Raises IndexError."""
        if isinstance(error, Answer):
            self._answer(index, error)
        else:
            later = RetryLater(f"{type(error).__name__}: {error}")
            later.kind = FAILED
            self._answer(index, later.with_traceback(error.__traceback__))

    def _answer(self, index: int, answer: Answer) -> None:
        place = range(len(self))[index]
        self.answers[place] = answer


def reason_of_reject(error: Reject) -> str:
    """The reason, and the last line of the traceback of what it was raised from, or of itself."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    frame = (cause or error).__traceback__
    if frame is None or not error._adds_place:
        return error.reason
    while frame.tb_next is not None:
        frame = frame.tb_next
    code = frame.tb_frame.f_code
    place = f"{os.path.basename(code.co_filename)}:{frame.tb_lineno} in {code.co_name}"
    if cause is None:
        return f"{error.reason} [{place}]"
    return f"{error.reason} [{place}: {type(cause).__name__}: {cause}]"


def milliseconds_of(name: str, after: float | timedelta) -> int:
    """Raises InvalidArgument: negative, longer than ten years, or no time."""
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not isfinite(seconds)
        or not 0 <= seconds <= AFTER_S_MAX
    ):
        raise InvalidArgument(
            f"{name} must be a number of seconds or a timedelta, up to ten years, not {after!r}"
        )
    return ceil(seconds * 1_000)
