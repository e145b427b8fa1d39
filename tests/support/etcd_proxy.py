"""An etcd that serves only some calls: a gRPC proxy in front of a real one.

A proxy below gRPC could only make everything hang; this one knows the calls. Messages are passed on
as bytes, errors unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from aerobee.nameserver.etcd3_loader import load_etcd3

WATCH = "/etcdserverpb.Watch/Watch"
RANGE = "/etcdserverpb.KV/Range"
STREAMS = (WATCH, "/etcdserverpb.Lease/LeaseKeepAlive")

Context = grpc.aio.ServicerContext[bytes, bytes]


class EtcdProxy:
    """Faults are attributes; once set, they affect all later calls."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._server = grpc.aio.server()
        self._watches: set[grpc.aio.StreamStreamCall[bytes, bytes]] = set()
        self._calls: list[str] = []
        self.port = 0
        self.watches_mute = 0
        """This many of the next watches are accepted but never answered."""
        self.refuses_reads_of_all = False
        """Reads of everything, and of its revision, are refused as by an overloaded etcd; reads of
        a few records, transactions and leases are not."""

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def watch_count(self) -> int:
        """The number of watches requested."""
        return self._calls.count(WATCH)

    async def __aenter__(self) -> EtcdProxy:
        self._channel = grpc.aio.insecure_channel(self._target)
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._server.stop(0)
        await self._channel.close()

    def end_watches(self) -> None:
        """End the current watches."""
        for call in tuple(self._watches):
            call.cancel()

    async def pass_one(self, method: str, request: bytes, context: Context) -> bytes:
        self._calls.append(method)
        if self.refuses_reads_of_all and method == RANGE and _is_of_all(request):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "etcdserver: request timed out")
        call: Any = self._channel.unary_unary(method)
        try:
            answer: bytes = await call(request, timeout=10)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        return answer

    async def pass_stream(
        self, method: str, requests: Any, context: Context
    ) -> AsyncIterator[bytes]:
        self._calls.append(method)
        if method == WATCH and self.watches_mute > 0:
            self.watches_mute -= 1
            await asyncio.Event().wait()
        call: Any = self._channel.stream_stream(method)(requests)
        if method == WATCH:
            self._watches.add(call)
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        finally:
            self._watches.discard(call)
            call.cancel()


def _is_of_all(request: bytes) -> bool:
    """Whether it reads pages or counts, not just a few records."""
    asked = load_etcd3().etcdrpc.RangeRequest.FromString(request)
    return bool(asked.limit or asked.count_only)


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, proxy: EtcdProxy) -> None:
        self._proxy = proxy

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method
        if method in STREAMS:

            async def pass_stream(requests: Any, context: Context) -> AsyncIterator[bytes]:
                async for answer in self._proxy.pass_stream(method, requests, context):
                    yield answer

            return grpc.stream_stream_rpc_method_handler(pass_stream)

        async def pass_one(request: bytes, context: Context) -> bytes:
            return await self._proxy.pass_one(method, request, context)

        return grpc.unary_unary_rpc_method_handler(pass_one)
