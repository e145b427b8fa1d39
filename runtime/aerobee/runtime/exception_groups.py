"""Looks inside exception groups, for callers that can name only one cause."""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


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
