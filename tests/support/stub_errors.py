"""What grpcio's stubs raise, as the errors that Aerobee's own clients raise instead."""

from __future__ import annotations

import grpc

from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.grpcio_channel import call_error
from aerobee.runtime.own_protocol import error_from_call


def error_from_rpc(error: grpc.aio.AioRpcError, address: str) -> AerobeeError:
    return error_from_call(call_error(error, address), address)
