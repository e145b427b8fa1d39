"""The slave's call to its master, as a stream of bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aerobee.broker.replication.stream_tasks import FrameStream
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import REPLICATE


@asynccontextmanager
async def connect_to_master(address: str) -> AsyncIterator[FrameStream]:
    """A stream over a connection of its own; its `read` and `write` raise what goes wrong."""
    channels = Channels(own_connections=True)
    try:
        yield channels.open_stream(address, REPLICATE)
    finally:
        await channels.close()
