"""How gRPC writes a peer's address."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

_MAPPED: Final = "::ffff:"


def peer_name(address: object) -> str:
    """`ipv4:127.0.0.1:4711`, `ipv6:%5B::1%5D:4711` or `unix:/path`, as in grpcio.

    `address`: the peer's address from a socket or a transport.
    """
    if isinstance(address, tuple) and len(address) == 2:
        return f"ipv4:{address[0]}:{address[1]}"
    if isinstance(address, tuple) and str(address[0]).startswith(_MAPPED) and "." in address[0]:
        # An IPv4 address, on a socket that accepts both families.
        return f"ipv4:{address[0].removeprefix(_MAPPED)}:{address[1]}"
    if isinstance(address, tuple) and len(address) >= 4:
        return f"ipv6:{quote(f'[{address[0]}]', safe=':')}:{address[1]}"
    if isinstance(address, str) and address:
        return f"unix:{address}"
    return "unknown"
