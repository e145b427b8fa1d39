"""The socket on which browsers come, before anything that serves them is loaded."""

from __future__ import annotations

import socket

from aerobee.runtime.errors import InvalidArgument

BACKLOG = 100


def listening_socket(host: str, port: int) -> socket.socket:
    """Listens at once, so that who comes before the server runs waits for it. Port 0: any free one.

    Raises:
        InvalidArgument: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidArgument(
            f"the console cannot listen on {host}:{port}: {error.strerror}; choose another --port"
        ) from error
    listener.setblocking(False)
    return listener
