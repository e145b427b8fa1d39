"""The commit logs of the golden stores, written by Apache's broker, and their manifests."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from aerobee.store.format.record import Record, RecordCorrupt

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
GOLDEN_NAMES = ("clean-small", "crashed", "crashed-torn", "retained", "ipv6-v2")


class GoldenLog:
    """The commit log of one golden store, and its manifest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.manifest: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
        self.segments: dict[int, bytes] = {}
        self.checkpoint = b""
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            for member in archive.getmembers():
                folder, _, file = member.name.removeprefix(f"{name}/").rpartition("/")
                if member.isfile() and (folder == "commitlog" or file == "checkpoint"):
                    content = archive.extractfile(member)
                    assert content is not None
                    if folder == "commitlog":
                        self.segments[int(file)] = content.read()
                    else:
                        self.checkpoint = content.read()

    def records(self) -> list[Record]:
        """All complete records; after them comes nothing, a blank record, or the tear."""
        found: list[Record] = []
        for _, data in sorted(self.segments.items()):
            position = 0
            while position < len(data):
                try:
                    record = Record(data, position)
                    record.check()
                except RecordCorrupt:
                    break
                found.append(record)
                position = record.end
        return found

    def messages(self) -> dict[int, dict[str, Any]]:
        """Every message the manifest lists, by its physical offset."""
        return {
            message["physicalOffset"]: message
            for queues in self.manifest["topics"].values()
            for queue in queues.values()
            for message in queue["messages"]
        }
