"""What a server serves: methods, and how their handlers are called.

A handler has one of three styles, depending on what it costs:

    synchronous   fn(request, call) -> answer          nothing but the call itself
    completion    fn(request, call) -> None            the same; the answer is given later by
                                                       call.finish(answer), as after a group commit
                                    -> async fn()      this call needs more: what gives its answer
                                                       runs in a task that ends with the call
    coroutine     async fn(request, call) -> answer    a task: about 5 us more

Streaming calls are coroutines or async generators:

    answers       async fn(request, call) -> AsyncIterator of answers
    requests      async fn(requests, call) -> answer
    both          async fn(requests, call) -> AsyncIterator of answers

A coroutine in place of an async generator sends its answers with `await call.send(answer)`.
`requests` is an async iterator; it is the call itself. A handler ends its call with a status other
than OK by raising RpcError or, in completion style, by calling `call.abort`. Any other exception is
passed to the server's `on_bug` and answered as UNKNOWN without details.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Style(Enum):
    """How a handler is called; see above."""

    SYNCHRONOUS = "synchronous"
    COMPLETION = "completion"
    COROUTINE = "coroutine"
    GENERATOR = "generator"


Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """One method of one service. `deserialize` and `serialize` may be None if the handler takes or
    returns bytes, or streams answers of which each is a tuple of two parts; both may raise
    RpcError."""

    path: str
    """As requests name it: `/package.Service/Method`."""
    handler: Callable[..., Any]
    style: Style
    streams_requests: bool = False
    streams_answers: bool = False
    deserialize: Convert | None = None
    serialize: Convert | None = None
    compress_bytes_min: int | None = None
    """Answers of at least this size are compressed for clients that accept gzip; None: never."""
    takes_views: bool = False
    """Long requests may be passed to `deserialize` as writable views, which belong to it."""
    plain_bytes_max: int | None = None
    """How large a request that came compressed may be when decompressed, if that is less than the
    server's limit."""

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or self.path.count("/") != 2:
            raise ValueError(f"{self.path!r} is no path of a method; use /package.Service/Method")
        is_task = self.style in (Style.COROUTINE, Style.GENERATOR)
        if (self.streams_requests or self.streams_answers) and not is_task:
            raise ValueError(f"{self.path} streams, so its handler is a coroutine or a generator")
        if self.style is Style.GENERATOR and not self.streams_answers:
            raise ValueError(f"{self.path} has one answer, so its handler is no generator")


def synchronous(
    path: str,
    handler: Callable[..., Any],
    *,
    deserialize: Convert | None = None,
    serialize: Convert | None = None,
) -> Method:
    """One request, answered at once."""
    return Method(path, handler, Style.SYNCHRONOUS, False, False, deserialize, serialize)


def completion(
    path: str,
    handler: Callable[..., Any],
    *,
    deserialize: Convert | None = None,
    serialize: Convert | None = None,
) -> Method:
    """One request, answered later with `call.finish` or `call.abort`."""
    return Method(path, handler, Style.COMPLETION, False, False, deserialize, serialize)


def coroutine(
    path: str,
    handler: Callable[..., Any],
    *,
    streams_requests: bool = False,
    streams_answers: bool = False,
    deserialize: Convert | None = None,
    serialize: Convert | None = None,
) -> Method:
    """A coroutine function, or an async generator function for calls that stream answers."""
    style = Style.GENERATOR if inspect.isasyncgenfunction(handler) else Style.COROUTINE
    return Method(path, handler, style, streams_requests, streams_answers, deserialize, serialize)
