"""How long calls with one answer take, by what was asked and how it went.

Owns: nothing; it tells an observer. Calls that stream are not timed here: a stream lasts as long as
its client likes, so what they take is measured where they answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc

from aerobee.runtime.clock import Clock
from aerobee.runtime.method_wrapping import WrappingInterceptor
from aerobee.runtime.own_protocol import CODE_METADATA_KEY, error_from_code

SUCCESS = "success"
CANCELLED = "cancelled"
INTERNAL = "internal"

Behaviour = Callable[[Any, Any], Awaitable[Any]]


class RpcObserver(Protocol):
    """Who adds it up."""

    def answered(self, method: str, outcome: str, elapsed_s: float) -> None:
        """`method` is the name within its service; `outcome` SUCCESS, or an error in snake_case."""
        ...


class LatencyInterceptor(WrappingInterceptor):
    """Times the handlers of calls with one answer."""

    def __init__(self, observer: RpcObserver, clock: Clock) -> None:
        super().__init__()
        self._observer = observer
        self._clock = clock

    def wrapped(self, name: str, handler: Any) -> Any:
        if handler.unary_unary is None:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            self._around(name.rpartition("/")[2], handler.unary_unary),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _around(self, method: str, behaviour: Behaviour) -> Behaviour:
        observer, clock = self._observer, self._clock

        async def timed(request: Any, context: Any) -> Any:
            began_s = clock.monotonic_s()
            outcome = CANCELLED
            try:
                answer = await behaviour(request, context)
                outcome = SUCCESS
            except Exception:
                outcome = _outcome_of(context)
                raise
            finally:
                observer.answered(method, outcome, clock.monotonic_s() - began_s)
            return answer

        return timed


def _outcome_of(context: Any) -> str:
    """What the error border has put into the answer."""
    for key, value in context.trailing_metadata() or ():
        if key == CODE_METADATA_KEY and str(value).isdigit():
            return _snake_case(type(error_from_code(int(str(value)), "")).__name__)
    return INTERNAL


def _snake_case(name: str) -> str:
    """`TopicNotFound` -> `topic_not_found`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
