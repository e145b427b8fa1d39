"""Where this broker is reached: known once it listens."""

from __future__ import annotations


class OwnAddress:
    """`text` is host:port; `outside` where clients outside reach it, empty if there as well."""

    def __init__(self, configured: str, outside: str = "") -> None:
        """A configured port 0 is whichever is free when the broker begins to listen."""
        self.text = configured
        self.outside = outside

    def listens(self, port: int) -> None:
        """On this port."""
        host, _, configured_port = self.text.rpartition(":")
        if configured_port == "0":
            self.text = f"{host}:{port}"
