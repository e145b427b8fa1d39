"""What follows an append, for tests with neither threads nor replicas."""

from __future__ import annotations


class NoFlusher:
    """The test decides what is on disk."""

    def appended(self) -> None: ...

    def request(self) -> None: ...


class NoStreams:
    """For a master without followers."""

    def on_appended(self) -> None: ...

    def on_confirmed(self) -> None: ...
