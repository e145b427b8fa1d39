"""A node's address as clients get it, written the same everywhere: they key connections by it."""

from __future__ import annotations

import ipaddress

from apache.rocketmq.v2 import definition_pb2 as v2


def endpoints_of(address: str) -> v2.Endpoints:
    """For an address with which nodes register, such as `10.0.0.5:10911`, `[::1]:10911` or
    `mq-1.example:10911`."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        is_ipv6 = ipaddress.ip_address(host).version == 6
        scheme = v2.IPv6 if is_ipv6 else v2.IPv4
    except ValueError:
        scheme = v2.DOMAIN_NAME
    # One address: clients disagree about the meaning of several.
    return v2.Endpoints(scheme=scheme, addresses=[v2.Address(host=host, port=int(port))])
