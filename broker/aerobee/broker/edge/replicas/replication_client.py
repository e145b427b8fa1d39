"""The slave's call to its master, as a stream of messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from aerobee.access.credentials import Credentials
from aerobee.broker.edge.replicas.message_streams import SlaveMessages
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import REPLICATE
from aerobee.rpc.client_channel import DialledTls

ConnectToMaster = Callable[[str], AbstractAsyncContextManager[SlaveMessages]]


@asynccontextmanager
async def connect_to_master(
    address: str,
    credentials: Credentials | None = None,
    tls: DialledTls | None = None,
) -> AsyncIterator[SlaveMessages]:
    """A stream over a connection of its own; its `read` and `write` raise any errors."""
    channels = Channels(credentials=credentials, tls=tls)
    try:
        yield SlaveMessages(channels.open_stream(address, REPLICATE))
    finally:
        await channels.close()


def connector(credentials: Credentials, tls: DialledTls | None) -> ConnectToMaster:
    """The same for one node."""
    return partial(connect_to_master, credentials=credentials, tls=tls)
