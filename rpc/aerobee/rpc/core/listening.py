"""The sockets of a server's address, bound but not yet listening."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable
from typing import Any, Final

BACKLOG: Final = 1_024
"""Connections that the system may queue for a listener until it accepts them."""
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


async def bound_sockets(
    loop: asyncio.AbstractEventLoop, host: str, port: int
) -> list[socket.socket]:
    """One socket for each address of `host`, all on one port, even if `port` is 0. A wildcard of
    either family accepts connections of both, as in grpcio.

    Raises:
        OSError: the port is in use, or no address belongs to this machine.
    """
    if host in _WILDCARDS:
        any_port = ("::", port, 0, 0), ("0.0.0.0", port)
        try:
            return [_bound(socket.AF_INET6, any_port[0], is_dual=True)]
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
        return [_bound(socket.AF_INET, any_port[1])]
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return _all_bound(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _all_bound(addresses: Iterable[tuple[int, Any]]) -> list[socket.socket]:
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in addresses:
            if bound:  # for a port chosen by the system
                address = (address[0], bound[0].getsockname()[1], *address[2:])
            try:
                bound.append(_bound(family, address))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
        if not bound:
            raise missing or OSError(errno.EADDRNOTAVAIL, "the host has no address")
    except BaseException:
        for one in bound:
            one.close()
        raise
    return bound


def _bound(family: int, address: Any, *, is_dual: bool = False) -> socket.socket:
    # asyncio sets TCP_NODELAY, which sends small answers at once, only if the socket names its
    # protocol, and accepted sockets inherit that from this one.
    one = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Connections of a former server in TIME_WAIT do not block the port.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not is_dual))
        one.setblocking(False)
        one.bind(address)
    except BaseException:
        one.close()
        raise
    return one
