"""What a consumer writes down about each message that it has processed, and how that is read back.

A consumer appends one line per message to its own file before it confirms the message; nothing else
of what the demo claims rests on what a process says about itself. A line that a kill cut short has
no end: it was never confirmed, and is not counted.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Position(NamedTuple):
    """The place of a message in the cluster."""

    broker_name: str
    queue_id: int
    queue_offset: int


class Sighting(NamedTuple):
    """One message as one consumer saw it."""

    identity: str
    """Of the event, computed from the body that arrived."""
    checksum: int
    """Of the body that arrived."""
    position: Position

    def encode(self) -> bytes:
        broker_name, queue_id, queue_offset = self.position
        return (
            f"{self.identity}\t{self.checksum:08x}\t{broker_name}\t{queue_id}\t{queue_offset}\n"
        ).encode()

    @classmethod
    def decode(cls, line: bytes) -> Sighting:
        identity, checksum, broker_name, queue_id, queue_offset = line.decode().split("\t")
        position = Position(broker_name, int(queue_id), int(queue_offset))
        return cls(identity, int(checksum, 16), position)


def checksum(body: bytes) -> int:
    """CRC-32 of a body."""
    return zlib.crc32(body)


class SightingsWriter:
    """Appends to a consumer's file; each call is one write to the page cache."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, sightings: Sequence[Sighting]) -> None:
        """Returns when the lines outlive this process."""
        data = b"".join(sighting.encode() for sighting in sightings)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        os.close(self._descriptor)


class SightingsReader:
    """Reads a file that a living consumer appends to, each line once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def read_new(self) -> list[Sighting]:
        """The lines completed since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data.rfind(b"\n") + 1
        self._position += whole
        return [Sighting.decode(line) for line in data[:whole].splitlines()]
