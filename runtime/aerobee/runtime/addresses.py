"""Addresses in configurations: host:port, with a valid port, each used once.

Owns: what counts as an address. Names are not resolved here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from itertools import combinations

from aerobee.runtime.config import require
from aerobee.runtime.errors import InvalidArgument

PORT_MAX = 65_535
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]/]+):(0|[1-9][0-9]{0,4})")


def require_address(key: str, address: str) -> None:
    """For `__post_init__`: `address` is host:port; port 0 lets the system choose one.

    Raises:
        InvalidArgument: it is not, or the port is out of range.
    """
    _require(key, address, port_min=0)


def require_dialled_address(key: str, address: str) -> None:
    """For `__post_init__`: `address` is the host:port of a peer, which listens on a fixed port.

    Raises:
        InvalidArgument: it is not, or no peer can be reached at such a port.
    """
    _require(key, address, port_min=1)


def is_dialled_address(address: str) -> bool:
    """Whether it is the host:port of a peer. Brackets hold an IPv6 address."""
    try:
        require_dialled_address("", address)
    except InvalidArgument:
        return False
    return True


def _require(key: str, address: str, *, port_min: int) -> None:
    parts = _ADDRESS.fullmatch(address)
    require(
        parts is not None and port_min <= int(parts[2]) <= PORT_MAX,
        f"{key} must be host:port with a port of {port_min} to {PORT_MAX}",
        address,
    )
    host = address.rpartition(":")[0]
    require(
        not host.startswith("[") or _is_ipv6(host[1:-1]),
        f"{key} must have an IPv6 address within its brackets",
        address,
    )


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


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
