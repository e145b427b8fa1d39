"""Asks gRPC health once: what probes do, for commands and tests."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aerobee.runtime import errors
from aerobee.runtime.health import REASON_METADATA_KEY
from aerobee.runtime.own_protocol import error_from_rpc
from aerobee.runtime.rpc import build_channel


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    is_serving: bool
    reason: str
    """Why it is not; empty if it is, and if no reason is known."""


async def check_health(address: str, service: str = "", *, timeout_ms: int = 2_000) -> HealthAnswer:
    """What the process at host:port says of `service`.

    Raises:
        InvalidArgument: it tells of no such service.
        Unreachable, DeadlineExceeded: there is no answer.
        MqError: the server there has no health service.
    """
    async with build_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        call = stub.Check(
            health_pb2.HealthCheckRequest(service=service), timeout=timeout_ms / 1_000
        )
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise errors.InvalidArgument(
                    f"{address} answers: {error.details() or f'no service {service!r}'}"
                ) from error
            raise error_from_rpc(error, address) from error
        reason = b""
        for key, value in await call.trailing_metadata() or ():
            if key == REASON_METADATA_KEY and isinstance(value, bytes):
                reason = value
    is_serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    return HealthAnswer(is_serving, reason.decode("utf-8", "replace"))
