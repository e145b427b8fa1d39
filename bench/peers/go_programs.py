"""nats-server and the loads in Go, built from the modules listed in go_load/go.sum.

Go checks each module against go.sum. It keeps modules and compiled files in its usual places (`go
env GOPATH GOCACHE`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from peers.fetching import cache_folder, needed_program
from peers.processes import said_by

SOURCES = Path(__file__).parent / "go_load"
NATS_SERVER = "github.com/nats-io/nats-server/v2"
GRPC = "google.golang.org/grpc"


def version_of(module: str) -> str:
    """The version required in go.mod."""
    words = (SOURCES / "go.mod").read_text().split()
    return words[words.index(module) + 1].removeprefix("v")


def key_of(files: Iterable[Path]) -> str:
    """A short name for what is built from these files; it changes with them."""
    whole = hashlib.sha256()
    for file in sorted(files):
        whole.update(file.read_bytes())
    return whole.hexdigest()[:12]


class GoPrograms:
    """`load` and `nats-server`."""

    @property
    def folder(self) -> Path:
        return cache_folder() / f"go-{key_of(SOURCES.iterdir())}"

    @property
    def source(self) -> str:
        return (
            f"nats-server {version_of(NATS_SERVER)}, grpc-go {version_of(GRPC)} and the Go clients "
            "of NATS and Redis, from the Go module proxy, by `go build` (about 1 minute)"
        )

    async def fetch(self, into: Path) -> None:
        go = needed_program("go", "install Go 1.26 or newer (https://go.dev/dl)")
        for name, package in (("load", "."), ("nats-server", NATS_SERVER)):
            build = ("build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", into / name)
            await said_by(("nice", go, *build, package), folder=SOURCES)
