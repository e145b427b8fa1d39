"""grpcio's asyncio client: to servers, a client that is not Aerobee's."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.status import Status
from aerobee.rpc.own_protocol import error_from_call
from aerobee.rpc.server_engine import FRAME_BYTES_MAX
from aerobee.runtime.errors import AerobeeError

_BROKEN = ("Internal error from Core", "RST_STREAM")
"""gRPC's texts for a connection that ended in the middle of a call, as opposed to a status from the
server."""

_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", FRAME_BYTES_MAX),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # How long one attempt to connect may take: an address that is gone may not answer at all.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    # A process that comes back may have another address under the same name. By default a name is
    # resolved once in 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 500),
)


def build_channel(address: str, *, own_connection: bool = False) -> grpc.aio.Channel:
    """A client channel to host:port that reconnects by itself within 2 s.

    Channels of one process to one address share a connection, even one that is dead until keepalive
    notices after 15 s. A channel with `own_connection` does not: another channel, built after its
    peer was given up, starts with a new connection.
    """
    options = list(_OPTIONS)
    if own_connection:
        options.append(("grpc.use_local_subchannel_pool", 1))
    return grpc.aio.insecure_channel(address, options=options)


def error_from_rpc(error: grpc.aio.AioRpcError, address: str) -> AerobeeError:
    """What grpcio's stubs raise, as the error that Aerobee's own clients raise instead."""
    return error_from_call(_call_error(error), address)


def _call_error(error: grpc.aio.AioRpcError) -> CallError:
    details = error.details() or ""
    status = Status(error.code().value[0])
    is_broken = status is Status.INTERNAL and any(one in details for one in _BROKEN)
    return CallError(
        status,
        "" if is_broken else details,
        trailers=tuple(error.trailing_metadata() or ()),
        is_answer=not is_broken and status is not Status.UNAVAILABLE,
    )
