"""Asks gRPC health once, as probes do; for commands and tests."""

from __future__ import annotations

from dataclasses import dataclass

from grpc_health.v1 import health_pb2

from aerobee.rpc.client_channel import open_channel
from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.status import Status
from aerobee.rpc.core.tls import FollowedTls
from aerobee.rpc.own_protocol import error_from_call
from aerobee.runtime import errors
from aerobee.runtime.clock import system_random
from aerobee.runtime.health import REASON_METADATA_KEY

_CHECK = "/grpc.health.v1.Health/Check"


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    is_serving: bool
    reason: str
    """Why it is not serving; empty if it is, or if no reason is known."""


async def check_health(
    address: str, service: str = "", *, timeout_ms: int = 2_000, tls: FollowedTls | None = None
) -> HealthAnswer:
    """What the process at host:port reports about `service`. Without `tls`, over plain text.

    Raises:
        InvalidArgument: it has no such service, or `address` is not host:port.
        Unreachable, DeadlineExceeded: there is no answer.
        AerobeeError: the server there has no health service.
    """
    request = health_pb2.HealthCheckRequest(service=service).SerializeToString()
    channel = open_channel(address, system_random(), tls)
    try:
        call = channel.start(_CHECK, request, timeout_s=timeout_ms / 1_000, metadata=())
        answer = health_pb2.HealthCheckResponse.FromString(await call.answer)
    except CallError as error:
        if error.status is Status.NOT_FOUND:
            raise errors.InvalidArgument(
                f"{address} answers: {error.message or f'no service {service!r}'}"
            ) from error
        raise error_from_call(error, address) from error
    finally:
        await channel.close()
    reason = dict(call.trailing_metadata).get(REASON_METADATA_KEY, b"")
    is_serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    return HealthAnswer(
        is_serving, reason.decode("utf-8", "replace") if isinstance(reason, bytes) else ""
    )
