"""A channel for `V2` over this project's own gRPC engine, which runs in the event loop: if the
loop's time and network are virtual, its calls are, too. Those of grpcio are not.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aerobee.rpc.client_channel import open_channel


class OwnChannel:
    """What a generated stub needs of a channel. Request streams are not supported."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address, random.Random(0))

    async def close(self) -> None:
        await self._channel.close()

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: Any,
    ) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, *, metadata: Any, timeout: float) -> Any:
            data = request_serializer(request)
            begun = self._channel.start(path, data, timeout_s=timeout, metadata=metadata)
            return response_deserializer(await begun.answer)

        return call

    def unary_stream(
        self,
        path: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: Any,
    ) -> Callable[..., AsyncIterator[Any]]:
        async def call(request: Any, *, metadata: Any, timeout: float) -> AsyncIterator[Any]:
            data = request_serializer(request)
            begun = self._channel.stream(path, data, timeout_s=timeout, metadata=metadata)
            try:
                while (part := await begun.read()) is not None:
                    yield response_deserializer(part)
            finally:
                begun.cancel()

        return call

    def stream_stream(self, path: str, **_: Any) -> Callable[..., Any]:
        def call(**_: Any) -> Any:
            raise NotImplementedError(f"{path} takes a stream of requests")

        return call
