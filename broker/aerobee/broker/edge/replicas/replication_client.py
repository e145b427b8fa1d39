"""The slave's call to its master, as a stream of messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aerobee.broker.edge.replicas.message_streams import SlaveMessages
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import REPLICATE
from aerobee.runtime.client_channel import DialledTls
from aerobee.runtime.grpc_config import Engine


@asynccontextmanager
async def connect_to_master(
    address: str, engine: Engine | None = None, tls: DialledTls | None = None
) -> AsyncIterator[SlaveMessages]:
    """A stream over a connection of its own; its `read` and `write` raise what goes wrong."""
    channels = Channels(engine=engine, tls=tls)
    try:
        yield SlaveMessages(channels.open_stream(address, REPLICATE))
    finally:
        await channels.close()
