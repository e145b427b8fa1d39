"""Host addresses as text and as bytes."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.record import HostAddress


@given(st.data())
def test_a_host_comes_back_from_bytes_and_from_text(
    hosts: st.SearchStrategy[HostAddress], data: st.DataObject
) -> None:
    host = data.draw(hosts)
    assert HostAddress.unpack(host.pack()) == host
    assert len(host.pack()) == (20 if host.is_ipv6 else 8)
    assert HostAddress.parse(str(host)) == host
    assert host.host == str(ipaddress.ip_address(host.ip))


def test_ipv6_addresses_stand_in_brackets() -> None:
    assert str(HostAddress(bytes(15) + b"\1", 80)) == "[::1]:80"
    assert HostAddress.parse("[::1]:80").is_ipv6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1",
        "127.0.0.1:",
        ":80",
        "127.0.0.1:x",
        "127.0.0.1:65536",
        "::1:80",
        "host:80",
        "[::1]",
        "127.0.0.1:-1",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - ipaddress raises its own kind of ValueError
        HostAddress.parse(text)


@pytest.mark.parametrize(("ip", "port"), [(b"", 1), (bytes(5), 1), (bytes(4), 1 << 31)])
def test_what_fits_into_no_slot_is_refused(ip: bytes, port: int) -> None:
    with pytest.raises(ValueError, match=r"IP address has|port"):
        HostAddress(ip, port)
