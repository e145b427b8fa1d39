"""Aerobee beside the peers: `aerobee up` with one broker, and the Python client."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from aerobee.bench.cluster import running_cluster
from peers.processes import Server
from peers.system import BROKER_STAGES


class OwnBroker:
    """A nameserver and a broker with the file sizes of production."""

    stages = BROKER_STAGES
    title = "Aerobee"

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        flags = ("--broker-set", "store.flush_mode=sync") if sync_flush else ()
        async with running_cluster(flags=flags) as cluster:
            process_id = cluster.process_of("broker-a", 0)
            assert process_id is not None, "it has said that it is ready"
            load = (sys.executable, "-m", "peers.own_load")
            yield Server(process_id, (*load, cluster.nameserver, str(body_bytes)))
