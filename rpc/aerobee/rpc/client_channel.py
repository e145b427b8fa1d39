"""A client's connection to one address, as all of Aerobee's clients and nodes make it."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import replace

from aerobee.rpc.core.channel import Channel
from aerobee.rpc.core.channel_limits import ChannelLimits, client_connection_limits
from aerobee.rpc.core.connection_set import MemoryLimit
from aerobee.rpc.core.limits import Limit
from aerobee.rpc.core.tls import FollowedTls
from aerobee.rpc.server_engine import FRAME_BYTES_MAX
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.log import log_event

BACKOFF_MAX_S = 1.0
"""The longest pause between two attempts to connect. All calls during a pause fail."""

log = logging.getLogger(__name__)


DialledTls = FollowedTls
"""How a client's connections are encrypted."""


def open_channel(
    address: str,
    chance: random.Random,
    tls: DialledTls | None = None,
    memory: MemoryLimit | None = None,
) -> Channel:
    """A channel to host:port. `chance` randomises the pauses between attempts to connect. Without
    `tls` it is plain text. `memory` is shared with other channels.

    Raises:
        InvalidArgument: `address` is not host:port.
    """
    try:
        return Channel(
            address,
            now=asyncio.get_running_loop().time,
            random=chance,
            observer=_Observer(address),
            limits=_LIMITS,
            user_agent="aerobee",
            tls=tls,
            memory=memory,
        )
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


_LIMITS = ChannelLimits(
    connection=replace(client_connection_limits(), message_bytes_max=FRAME_BYTES_MAX),
    backoff_max_s=BACKOFF_MAX_S,
)


class _Observer:
    """Logs misbehaviour of servers."""

    def __init__(self, address: str) -> None:
        self._address = address

    def limit_met(self, limit: Limit, peer: str, reason: str) -> None:
        event = "connection ended by a limit"
        log_event(
            log, event, level=logging.DEBUG, address=self._address, limit=limit, reason=reason
        )
