"""Addresses in configurations: host:port, with a valid port, each used once.

Owns: what counts as an address. Names are not resolved here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from itertools import combinations

from aerobee.runtime.config import require

PORT_MAX = 65_535
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]/]+):([0-9]{1,5})")


def require_address(key: str, address: str) -> None:
    """For `__post_init__`: `address` is host:port; port 0 lets the system choose one.

    Raises:
        InvalidArgument: it is not, or the port is out of range.
    """
    parts = _ADDRESS.fullmatch(address)
    require(
        parts is not None and int(parts[2]) <= PORT_MAX,
        f"{key} must be host:port with a port of 0 to {PORT_MAX}",
        address,
    )


def require_dialled_address(key: str, address: str) -> None:
    """For `__post_init__`: `address` is the host:port of a peer, which listens on a fixed port.

    Raises:
        InvalidArgument: it is not, or no peer can be reached at such a port.
    """
    parts = _ADDRESS.fullmatch(address)
    require(
        parts is not None and 0 < int(parts[2]) <= PORT_MAX,
        f"{key} must be host:port with a port of 1 to {PORT_MAX}",
        address,
    )


def require_ports_of_their_own(addresses: Mapping[str, str]) -> None:
    """For `__post_init__`: the addresses one process listens on, by key; empty: it does not listen.

    Raises:
        InvalidArgument: two would use the same port of one host, or of all hosts.
    """
    used = [(key, *_host_and_port(address)) for key, address in addresses.items() if address]
    for (key, host, port), (other_key, other_host, other_port) in combinations(used, 2):
        require(
            port != other_port or port == 0 or not _is_one_host(host, other_host),
            f"{key} and {other_key} must have different ports",
            f"{addresses[key]}, {addresses[other_key]}",
        )


def is_loopback(address: str) -> bool:
    """Whether host:port can be reached from this machine only."""
    host, _ = _host_and_port(address)
    return not isinstance(host, str) and host.is_loopback


_Host = ipaddress.IPv4Address | ipaddress.IPv6Address | str
_LOCALHOST = ipaddress.IPv4Address("127.0.0.1")


def _host_and_port(address: str) -> tuple[_Host, int]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]").lower()
    if host == "localhost":
        return _LOCALHOST, int(port)
    try:
        return ipaddress.ip_address(host), int(port)
    except ValueError:
        return host, int(port)


def _is_one_host(host: _Host, other: _Host) -> bool:
    return host == other or any(
        not isinstance(one, str) and one.is_unspecified for one in (host, other)
    )
