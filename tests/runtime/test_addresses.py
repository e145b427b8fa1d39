"""What is taken for an address, and which of them can be listened on beside each other."""

from __future__ import annotations

import pytest

from aerobee.runtime.addresses import (
    is_loopback,
    require_address,
    require_dialled_address,
    require_ports_of_their_own,
)
from aerobee.runtime.errors import InvalidArgument


@pytest.mark.parametrize("address", ["h:0", "h:65535", "10.0.0.1:1", "[::1]:8081", "a.b-c:80"])
def test_host_and_a_port_that_exists_are_an_address(address: str) -> None:
    require_address("listen", address)


@pytest.mark.parametrize(
    "address",
    ["", "8081", ":8081", "h:", "h:65536", "h:99999", "h:-1", "::1:1", "127.0.0.1:080", "h:00"],
)
def test_anything_else_is_refused_by_its_key(address: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^health\.listen must be host:port"):
        require_address("health.listen", address)


@pytest.mark.parametrize("host", ["1:2:3", "1::2::3", "127.0.0.1", "12345::", "fe80", ".", ""])
def test_brackets_hold_an_ipv6_address_and_nothing_else(host: str) -> None:
    """It was taken for a name, and then no name server knew it."""
    for require in (require_address, require_dialled_address):
        with pytest.raises(InvalidArgument, match=r"^nameservers must (have an IPv6|be host:port)"):
            require("nameservers", f"[{host}]:8081")


@pytest.mark.parametrize("address", ["h:1", "h:65535", "[::1]:8081", "[2001:db8::7]:8081"])
def test_who_is_called_has_a_port(address: str) -> None:
    require_dialled_address("nameservers", address)


@pytest.mark.parametrize("address", ["h:0", "h:00", "h:65536", "h", "", ":1"])
def test_nobody_is_called_at_port_0(address: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^nameservers must be host:port with a port of 1 "):
        require_dialled_address("nameservers", address)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10.0.0.1:9", "10.0.0.1:9"),
        ("h:9", "H:09"),
        ("0.0.0.0:9", "10.0.0.1:9"),
        ("h:9", "[::]:9"),
        ("localhost:9", "127.0.0.1:9"),
        ("[::1]:9", "[0:0::1]:9"),
    ],
)
def test_one_port_of_one_host_is_not_listened_on_twice(one: str, other: str) -> None:
    for addresses in ((one, other), (other, one)):
        keys = dict(zip(("listen", "metrics.listen"), addresses, strict=True))
        with pytest.raises(InvalidArgument, match=r"metrics\.listen must have different"):
            require_ports_of_their_own(keys)


def test_other_ports_other_hosts_and_ports_that_the_system_chooses_are_fine() -> None:
    for addresses in (
        ("h:9", "h:10", "0.0.0.0:11"),
        ("h:9", "i:9", "10.0.0.1:9"),
        ("h:0", "h:0", "0.0.0.0:0"),
        ("h:9", "", ""),
    ):
        keys = dict(zip(("listen", "health.listen", "metrics.listen"), addresses, strict=True))
        require_ports_of_their_own(keys)


def test_only_this_machine_reaches_its_loopback() -> None:
    for address in ("localhost:1", "127.0.0.1:1", "127.1.2.3:1", "[::1]:1"):
        assert is_loopback(address)
    for address in ("0.0.0.0:1", "[::]:1", "10.0.0.1:1", "h:1"):
        assert not is_loopback(address)
