"""Runs in the pod of tools: the course of `aerobee demo`, told on the cluster that is there.

python3 -m tests.kubernetes.pods.demo NAMESERVER CLUSTER ARCHIVE FLIGHTS
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from aerobee.cli.demo.flights import read_flights
from aerobee.cli.demo.settings import DemoSettings
from aerobee.cli.demo.story import Stage, play
from aerobee.runtime.clock import SystemClock


async def main() -> None:
    nameserver, cluster, archive, count = sys.argv[1:]
    settings = DemoSettings(flights_max=int(count))
    flights = list(read_flights(Path(archive)))[: settings.flights_max]
    with tempfile.TemporaryDirectory() as folder:
        outcome = await play(
            Stage(
                settings=settings,
                flights=flights,
                nameserver=nameserver,
                cluster=cluster,
                folder=Path(folder),
                console=Console(stderr=True),
                clock=SystemClock(),
            )
        )
    paces = {pace.who: round(pace.per_second) for pace in outcome.paces}
    print(json.dumps({"proven": outcome.is_proven, "sent": outcome.sent, "perSecond": paces}))


if __name__ == "__main__":
    asyncio.run(main())
