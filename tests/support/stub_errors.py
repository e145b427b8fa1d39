"""What grpcio's stubs raise, as the errors that Aerobee's own clients raise instead."""

from __future__ import annotations

import grpc

from aerobee.rpc.grpcio_channel import call_error
from aerobee.rpc.own_protocol import error_from_call
from aerobee.runtime.errors import AerobeeError


def error_from_rpc(error: grpc.aio.AioRpcError, address: str) -> AerobeeError:
    return error_from_call(call_error(error, address), address)
