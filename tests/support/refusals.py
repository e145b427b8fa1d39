"""Sends requests that a server must refuse, unmodified, and measures what that costs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from aerobee.rocketmq_api.codes import error_of
from aerobee.rpc.own_protocol import error_from_code
from aerobee.rpc.request_limits import RequestLimits
from aerobee.runtime.errors import AerobeeError, InvalidArgument
from aerobee.v1 import broker_pb2
from tests.support.costly_requests import Place
from tests.support.grpcio_client import error_from_rpc
from tests.support.loop_price import Price, watched

MIB = 1024 * 1024
FAR_BYTES = 8 * MIB
REFUSED_STEP_S_MAX = 0.25
"""CPU time of the loop, in one piece, for a request above a limit; slow machines took 0.12."""
ANSWERED_STEP_S_MAX = 0.4
"""The same for a request that reaches its limits."""
MEMORY_BYTES_MAX = 256 * MIB
"""For all requests of a test. gRPC holds a request of 8 MiB about seven times in memory, including
the client's side, which is also in this process, and does not free all of it at once."""
ANSWER_S_MAX = 60.0
CALLER = (("x-mq-client-id", "costly"),)
"""Apache's API serves only callers that identify themselves."""


async def refusal_of(
    channel: grpc.aio.Channel, place: Place, request: bytes
) -> AerobeeError | None:
    """The server's error; None if it accepts the request."""
    method = place.method
    name = "_".join(
        "stream" if is_stream else "unary"
        for is_stream in (method.client_streaming, method.server_streaming)
    )
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            call = getattr(channel, name)(place.path)
            if method.client_streaming:
                running = call(metadata=CALLER)
                await running.write(request)
                answer = await running.read()
                running.cancel()
            elif method.server_streaming:
                running = call(request, metadata=CALLER)
                answer = await running.read()
                running.cancel()
            else:
                answer = await call(request, metadata=CALLER)
    except grpc.aio.AioRpcError as error:
        return error_from_rpc(error, "the server")
    return _told(method, answer) if isinstance(answer, bytes) else None


def _told(method: MethodDescriptor, answer: bytes) -> AerobeeError | None:
    """The error in an answer, for services that report errors that way."""
    if method.output_type.name == "GroupEvent":
        failed = broker_pb2.GroupEvent.FromString(answer).failed
        return error_from_code(failed.code, failed.message)
    if method.output_type.file.package == "apache.rocketmq.v2":
        told: Any = GetMessageClass(method.output_type).FromString(answer)
        return error_of(told.status)
    return None


def looked_into_from(limits: RequestLimits, place: Place) -> int:
    """From this size of a request, the elements that lead to a field are inspected."""
    elements = [each.full_name for each in place.outer if each.is_repeated]
    return max((limits.fields[name].looked_into_from for name in elements), default=0)


def beyond(limits: RequestLimits, place: Place) -> Iterator[bytes]:
    """Requests just above the field's limit, and far above."""
    limit = limits.fields[place.field.full_name]
    for request in place.at(replace(limit, looked_into_from=looked_into_from(limits, place)), 1):
        # A frame may have 32 MiB of records: those cost what they weigh.
        if len(request) <= 2 * FAR_BYTES:
            yield request
    if limit.count is not None or (limit.length or 0) < FAR_BYTES // 2:
        yield from place.far_above(FAR_BYTES)


async def assert_all_refused(
    channel: grpc.aio.Channel, limits: RequestLimits, places: Iterable[Place]
) -> Price:
    """Each place's requests above its limit, one after another; returns their cost."""
    async with watched() as price:
        for place in places:
            for request in beyond(limits, place):
                error = await refusal_of(channel, place, request)
                assert type(error) is InvalidArgument, f"{place}: {error!r}"
                assert re.search(r" has .*at most ", str(error)), f"{place}: {error}"
    assert price.longest_step_s < REFUSED_STEP_S_MAX, price
    assert price.memory_bytes < MEMORY_BYTES_MAX
    return price
