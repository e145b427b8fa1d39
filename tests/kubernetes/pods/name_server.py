"""The DNS server of the pods' network, as one of a cluster: it knows the names of Services and of
the pods of headless ones, says at once that it knows no other, and forgets an address with its pod.

Podman's own server asks the machine's servers for each name that it does not know, which is three
of four under a cluster's search list, and loses answers when several pods ask at once.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address

PORT = 53
IP_FREEBIND = 15
"""Of Linux; Python has no name for it."""
TTL_S = 5
HEADER = struct.Struct(">HHHHHH")
TYPE_A, CLASS_IN = 1, 1
ANSWERED, UNKNOWN = 0x8580, 0x8583
"""Flags: an answer that is authoritative; the same with the code NXDOMAIN."""

Lookup = Callable[[str], Sequence[str] | None]
"""The addresses of a name without its last dot; None if there is no such name. Any thread."""


class NameServer(socketserver.ThreadingUDPServer):
    """Answers in threads of its own between `start` and `close`."""

    daemon_threads = True

    def __init__(self, address: str, lookup: Lookup) -> None:
        self.lookup = lookup
        super().__init__((address, PORT), _Handler, bind_and_activate=False)
        # The network's bridge is there only while pods are.
        self.socket.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        self.server_bind()
        self._thread = threading.Thread(target=self.serve_forever, name="names", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(socketserver.BaseRequestHandler):
    server: NameServer

    def handle(self) -> None:
        request, answering = self.request
        answering.sendto(answer(request, self.server.lookup), self.client_address)


def answer(request: bytes, lookup: Lookup) -> bytes:
    """The answer to a request of one question."""
    (number, *_) = HEADER.unpack_from(request)
    name, end = _read_name(request, HEADER.size)
    kind, _ = struct.unpack_from(">HH", request, end)
    question = request[HEADER.size : end + 4]
    addresses = lookup(name)
    if addresses is None:
        return HEADER.pack(number, UNKNOWN, 1, 0, 0, 0) + question
    if kind != TYPE_A:
        addresses = ()
    # Each record names the question by its place.
    records = b"".join(
        struct.pack(">HHHIH", 0xC000 | HEADER.size, TYPE_A, CLASS_IN, TTL_S, 4)
        + IPv4Address(address).packed
        for address in addresses
    )
    return HEADER.pack(number, ANSWERED, 1, len(addresses), 0, 0) + question + records


def _read_name(request: bytes, at: int) -> tuple[str, int]:
    labels = []
    while (length := request[at]) > 0:
        labels.append(request[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    return ".".join(labels).lower(), at + 1
