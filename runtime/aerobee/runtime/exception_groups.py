"""What is inside an exception group, for callers that can name one cause only."""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def first_leaf(group: BaseExceptionGroup[E]) -> E:
    """The first exception that is no group itself: of a task group's, the one that came first."""
    error: E | BaseExceptionGroup[E] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def sole_cause(error: Exception) -> Exception:
    """What a group consists of if all of it is of one kind, else the group; no group: `error`."""
    if not isinstance(error, ExceptionGroup):
        return error
    inner = [sole_cause(one) for one in error.exceptions]
    return inner[0] if len({type(one) for one in inner}) == 1 else error
