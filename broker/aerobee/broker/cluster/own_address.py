"""Where this broker is reached: known once it listens."""

from __future__ import annotations


class OwnAddress:
    """`text` is host:port; `outside` is the address for outside clients, empty if the same."""

    def __init__(self, configured: str, outside: str = "") -> None:
        """A configured port 0 becomes a free port when the broker starts to listen."""
        self.text = configured
        self.outside = outside

    def listens(self, port: int) -> None:
        """Called once it listens on this port."""
        host, _, configured_port = self.text.rpartition(":")
        if configured_port == "0":
            self.text = f"{host}:{port}"
