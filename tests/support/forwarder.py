"""A TCP load balancer: one address that leads to a node, and later to another."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator

_BYTES = 1 << 16


class Forwarder(socketserver.ThreadingTCPServer):
    """`target` is host:port, for connections from now on."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = ""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Connection(socketserver.BaseRequestHandler):
    server: Forwarder

    def handle(self) -> None:
        host, _, port = self.server.target.rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port))) as node:
            back = threading.Thread(target=_copy, args=(node, self.request), daemon=True)
            back.start()
            _copy(self.request, node)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Until either end closes, which closes both."""
    with contextlib.suppress(OSError):
        while data := source.recv(_BYTES):
            sink.sendall(data)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def forwarding() -> Iterator[Forwarder]:
    with Forwarder() as forwarder:
        threading.Thread(target=forwarder.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield forwarder
        finally:
            forwarder.shutdown()
