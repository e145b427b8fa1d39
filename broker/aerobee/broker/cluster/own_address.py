"""Where this broker is reached: known once it listens; and the address stamped into records."""

from __future__ import annotations

import asyncio
import logging
import socket

from aerobee.broker.config import BrokerConfig
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.log import log_event
from aerobee.store.format.record_layout import HostAddress

log = logging.getLogger(__name__)

RESOLVE_TIMEOUT_S = 30.0
"""How long a start waits for its own name to resolve."""
RESOLVE_PAUSE_S = 0.5


class OwnAddress:
    """`text` is host:port; `outside` is the address for outside clients, empty if the same."""

    def __init__(self, configured: str, outside: str = "") -> None:
        """A configured port 0 becomes a free port when the broker starts to listen."""
        self.text = configured
        self.outside = outside

    def listens(self, port: int) -> None:
        """Called once it listens on this port."""
        host, _, configured_port = self.text.rpartition(":")
        if configured_port == "0":
            self.text = f"{host}:{port}"


async def store_host_of(config: BrokerConfig, clock: Clock) -> HostAddress:
    """The address stamped into records; a new name may take a while to resolve.

    Raises:
        InvalidArgument: it is a name that cannot be resolved.
    """
    known = config.known_store_host()
    if known is not None:
        return known
    host, _, port = (config.address or config.listen).rpartition(":")
    loop = asyncio.get_running_loop()
    deadline_s = clock.monotonic_s() + RESOLVE_TIMEOUT_S
    while True:
        try:
            found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            break
        except OSError as error:
            if clock.monotonic_s() >= deadline_s:
                raise InvalidArgument(
                    f"cannot resolve {host!r} of the broker's address: {error}; set store_host to "
                    "an IP address and port"
                ) from error
            log_event(log, "the broker's own name is not known yet", name=host, reason=error)
        await asyncio.sleep(RESOLVE_PAUSE_S)
    return HostAddress(socket.inet_pton(found[0][0], str(found[0][4][0])), int(port))
