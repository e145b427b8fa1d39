"""NATS JetStream: one server, one stream in files, the Go client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from peers.go_programs import NATS_SERVER, GoPrograms, version_of
from peers.processes import Server, free_port, listening
from peers.system import BROKER_STAGES

# By default JetStream answers from the page cache and syncs every two minutes.
CONFIG = """\
host: 127.0.0.1
port: {port}
jetstream {{ store_dir: "{store}"{sync} }}
"""


class Nats:
    """Answers from the page cache, or with `sync_interval: always`."""

    stages = BROKER_STAGES
    title = f"NATS {version_of(NATS_SERVER)}, Go"
    programs = (GoPrograms(),)

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        port = free_port()
        config = folder / "nats.conf"
        sync = ", sync_interval: always" if sync_flush else ""
        config.write_text(CONFIG.format(port=port, store=folder / "data", sync=sync))
        programs = GoPrograms().folder
        async with listening(
            programs / "nats-server", "-c", config, port=port, folder=folder
        ) as process:
            load = (str(programs / "load"), "nats", f"127.0.0.1:{port}", str(body_bytes))
            yield Server(process.pid, load)
