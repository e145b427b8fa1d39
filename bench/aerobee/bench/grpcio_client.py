"""A client that is not Aerobee's, for loads that a server must carry from others."""

from __future__ import annotations

import grpc

from aerobee.rpc.server_engine import FRAME_BYTES_MAX


def grpcio_channel(address: str) -> grpc.aio.Channel:
    """A channel of grpcio's asyncio client to host:port, for messages of any size that servers
    take."""
    return grpc.aio.insecure_channel(
        address,
        options=[
            ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
            ("grpc.max_send_message_length", FRAME_BYTES_MAX),
        ],
    )
