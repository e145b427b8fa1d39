"""Whether a function can be a listener, judged by its signature, before anything is consumed.

What may work is not refused: a function without annotations, with names in them that cannot be
resolved, or wrapped by a decorator, which keeps the annotations of what it wraps but may change the
arguments and the result. Mistakes of such a function are found when it is called.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Any, Final, Union, get_args, get_origin

from aerobee.client_core.message import Message, ReceivedMessage
from aerobee.consumer_client.answers import Answer, Batch
from aerobee.consumer_client.listener import ConsumeResult, check_callback
from aerobee.runtime.errors import InvalidArgument

ANSWERS: Final = (
    "return None or ConsumeResult.SUCCESS when the messages are done, ConsumeResult.RETRY_LATER or "
    "RetryLater(...) to have them again, Reject(...) to make them dead letters"
)
_NOT_MESSAGES: Final = (Message, ReceivedMessage, bytes, str, int, float, types.NoneType)
_NO_ANSWERS: Final = (bool, int, float, bytes, list, tuple, dict, set, frozenset, Enum)


class ResultIllegal(InvalidArgument):
    """A listener's return value says nothing about its messages, so they count as failed."""


def check_listener(listener: Callable[..., object]) -> None:
    """Raises InvalidArgument: it cannot be a listener."""
    check_callback("the listener", listener, "a sequence of messages", 1)
    if _is_wrapped(listener):
        return
    try:
        signature = inspect.signature(listener, eval_str=True)
    except Exception:  # An annotation may be any code.
        return
    first = next(iter(signature.parameters.values()))
    if _is_all(first.annotation, _is_no_sequence):
        raise InvalidArgument(
            f"the listener takes {_said(first.annotation)}, and is called with a sequence of "
            f"messages: write `{first.name}: Sequence[ReceivedMessage]` and loop over it"
        )
    if _is_all(signature.return_annotation, _is_no_answer):
        raise InvalidArgument(
            f"the listener returns {_said(signature.return_annotation)}, which says nothing about "
            f"its messages: {ANSWERS}"
        )


def gets_batches(listener: Callable[..., object]) -> bool:
    """Whether its parameter is annotated as a `Batch`."""
    try:
        signature = inspect.signature(listener, eval_str=True)
    except Exception:  # An annotation may be any code.
        return False
    first = next(iter(signature.parameters.values()), None)
    return (
        first is not None
        and isinstance(first.annotation, type)
        and issubclass(first.annotation, Batch)
    )


def _is_wrapped(listener: Callable[..., object]) -> bool:
    while isinstance(listener, partial):
        listener = listener.func
    called = listener if inspect.isroutine(listener) else type(listener).__call__
    return hasattr(called, "__wrapped__")


def illegal_result(outcome: object) -> ResultIllegal:
    """For a call that has returned."""
    return ResultIllegal(f"the listener returned {type(outcome).__name__}: {ANSWERS}")


def said(error: Exception) -> str:
    """A listener's error for the log, with its cause if that is known."""
    text = repr(error)
    missing = (error.name or "") if isinstance(error, AttributeError) else ""
    if hasattr(ReceivedMessage, missing) and isinstance(getattr(error, "obj", None), list):
        text += "; a listener is called with a list of messages, not with one: loop over it"
    return text


def _is_all(annotation: Any, is_wrong: Callable[[type], bool]) -> bool:
    """Whether every value allowed by the annotation is wrong."""
    if get_origin(annotation) in (Union, types.UnionType):
        return all(_is_all(each, is_wrong) for each in get_args(annotation))
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and kind is not inspect.Parameter.empty and is_wrong(kind)


def _is_no_sequence(kind: type) -> bool:
    return issubclass(kind, _NOT_MESSAGES)


def _is_no_answer(kind: type) -> bool:
    return issubclass(kind, _NO_ANSWERS) and not issubclass(
        kind, ConsumeResult | Answer | Awaitable
    )


def _said(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
