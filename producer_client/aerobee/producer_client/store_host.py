"""The address that a broker stamps into records, which a producer's receipts also contain.

Owns: the running lookup of a name. A lookup that hangs, as when no name server answers, cannot be
ended, and holds a thread: so waiting for it is limited, and no second one is started meanwhile.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

from aerobee.cluster_view.route import Endpoint
from aerobee.runtime import errors
from aerobee.store.format.record import HostAddress

LOOK_UP_TIMEOUT_S = 5.0

Found = asyncio.Future[list[tuple[Any, ...]]]


class StoreHosts:
    """For one broker group."""

    def __init__(self) -> None:
        self._asked = ("", False)
        self._running: Found | None = None

    async def find(
        self, endpoint: Endpoint, *, timeout_s: float = LOOK_UP_TIMEOUT_S
    ) -> HostAddress:
        """The address; a DNS name is resolved.

        Raises:
            Unreachable: the name does not resolve, or not in time.
        """
        host, _, port = endpoint.address.rpartition(":")
        try:
            return HostAddress(ip=ipaddress.ip_address(host.strip("[]")).packed, port=int(port))
        except ValueError:
            pass
        running, asked = self._running, (endpoint.address, endpoint.store_host_ipv6)
        if running is None or asked != self._asked:
            self._asked = asked
            running = self._running = _look_up(host, int(port), endpoint)
        await asyncio.wait((running,), timeout=timeout_s)
        if not running.done():
            raise errors.Unreachable(
                f"cannot resolve {endpoint.address}: no answer within {timeout_s:g} s"
            )
        self._running = None
        try:
            found = running.result()
        except OSError as error:
            raise errors.Unreachable(f"cannot resolve {endpoint.address}: {error}") from error
        return HostAddress(ip=ipaddress.ip_address(found[0][4][0]).packed, port=int(port))


def _look_up(host: str, port: int, endpoint: Endpoint) -> Found:
    family = socket.AF_INET6 if endpoint.store_host_ipv6 else socket.AF_INET
    running: Found = asyncio.get_running_loop().run_in_executor(
        None, socket.getaddrinfo, host, port, family
    )
    # Its waiters may be gone when it fails.
    running.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return running
