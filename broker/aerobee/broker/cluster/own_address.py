"""Where clients reach this broker: known once it listens."""

from __future__ import annotations


class OwnAddress:
    """`text` is host:port."""

    def __init__(self, configured: str) -> None:
        """A configured port 0 is whichever is free when the broker begins to listen."""
        self.text = configured

    def listens(self, port: int) -> None:
        """On this port."""
        host, _, configured_port = self.text.rpartition(":")
        if configured_port == "0":
            self.text = f"{host}:{port}"
