"""Interceptors of a server that put something around each of its methods."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

import grpc


class WrappingInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, unused-ignore]
    """Wraps the handler of a method once, at its first call."""

    def __init__(self) -> None:
        # By full method name, of those that are served: as many as there are.
        self._wrapped: dict[str, Any] = {}

    @abstractmethod
    def wrapped(self, name: str, handler: Any) -> Any:
        """What serves the method of this full name from now on."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        name = handler_call_details.method
        wrapped = self._wrapped.get(name)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            wrapped = self._wrapped[name] = self.wrapped(name, handler)
        return wrapped
