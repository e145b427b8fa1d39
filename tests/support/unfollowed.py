"""What follows an append, where a test has neither threads nor replicas."""

from __future__ import annotations


class NoFlusher:
    """The test says what is on the disk."""

    def appended(self) -> None: ...

    def request(self) -> None: ...


class NoStreams:
    """Of a master that nobody follows."""

    def on_appended(self) -> None: ...

    def on_confirmed(self) -> None: ...
