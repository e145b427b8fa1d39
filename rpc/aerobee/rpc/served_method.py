"""A method as every engine serves it, and how a servicer declares what its handler costs.

A handler takes a request and a context, as protoc's servicers do, and has one of these styles:

    async def M(self, request, context) -> answer       a task for each call
    @answered_at_once
    def M(self, request, context) -> answer             waits for nothing
    @answered_later
    def M(self, request, context, reply) -> None        answers later by `reply`, without a task
                                         -> async def() the call needs a task after all: the answer
                                                        is what this function returns; it does not
                                                        run if the call ends before

Streaming calls are coroutines or async generators. A method that is neither is one of protoc's
placeholders: it is not served.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from aerobee.rpc.core.method import Style
from aerobee.rpc.core.status import Metadata, Status

_STYLE = "aerobee_style"

F = TypeVar("F", bound=Callable[..., Any])


class OpenCall(Protocol):
    """An engine's call that is answered later."""

    @property
    def is_over(self) -> bool:
        """It was answered, or its client is gone."""
        ...

    def finish(self, answer: Any) -> None:
        """End it with OK; does nothing if it has ended."""
        ...

    def abort(self, status: Status, message: str = "", *, trailers: Metadata = ()) -> None:
        """End it with another status; does nothing if it has ended."""
        ...


@dataclass(frozen=True, slots=True)
class ServedMethod:
    """One method of one service. The handler ends its call with a status other than OK by raising
    aerobee.rpc.core.status.RpcError; one in completion style gets an OpenCall in addition to the
    context.
    """

    path: str
    """`/package.Service/Method`."""
    handler: Callable[..., Any]
    style: Style
    streams_requests: bool
    streams_answers: bool
    read: Callable[[bytes], Any] | None
    """None: the handler takes bytes."""
    write: Callable[[Any], bytes] | None
    """None: the handler returns bytes."""
    request_bytes_max: int | None = None
    """The limit of its requests' size, if there is one."""
    takes_views: bool = False
    """`read` also takes writable views, which are then its own."""


def answered_at_once(method: F) -> F:
    """For a servicer's method that is a plain function and never waits."""
    setattr(method, _STYLE, Style.SYNCHRONOUS)
    return method


def answered_later(method: F) -> F:
    """For a servicer's method that is a plain function with a third parameter: a `Reply`."""
    setattr(method, _STYLE, Style.COMPLETION)
    return method


def joined_parts(answer: tuple[bytes, bytes]) -> bytes:
    """As `write`, for a handler that returns each answer in two parts. Only grpcio joins them."""
    return b"".join(answer)


def writer_at_once(context: Any) -> Callable[[Any], bool]:
    """A function that writes an answer of a stream in this turn of the event loop and returns True,
    or does nothing and returns False: while the client is behind, and always with grpcio.
    `context.write` waits instead."""
    write: Callable[[Any], bool] | None = getattr(context, "write_at_once", None)
    return write if write is not None else lambda answer: False


def request_bytes(context: Any, request: Any) -> int:
    """The size of the request that a stream has just read. grpcio does not report it, so there it
    is encoded again."""
    told: Callable[[], int] | None = getattr(context, "request_bytes", None)
    return int(request.ByteSize()) if told is None else told()


def metadata_named(context: Any, names: Mapping[bytes, str]) -> Mapping[str, str]:
    """The metadata with these names, which are those of texts; `names` has each as bytes and as
    text."""
    find: Callable[[Mapping[bytes, str]], Mapping[str, str]] | None = getattr(
        context, "metadata_named", None
    )
    if find is not None:
        return find(names)
    known = names.values()
    return {key: value for key, value in context.invocation_metadata() or () if key in known}


def send_head(context: Any) -> None:
    """Send the header block of a stream before its first answer, for clients that wait for it.
    grpcio's engine always does."""
    send: Callable[[], None] | None = getattr(context, "send_head", None)
    if send is not None:
        send()


def style_of(behaviour: Callable[..., Any]) -> Style | None:
    """None for protoc's placeholder of a method that a servicer does not implement."""
    style: Style | None = getattr(behaviour, _STYLE, None)
    if style is not None:
        return style
    if inspect.isasyncgenfunction(behaviour):
        return Style.GENERATOR
    return Style.COROUTINE if inspect.iscoroutinefunction(behaviour) else None
