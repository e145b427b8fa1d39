"""Fail-overs of real processes under load, judged.

python -m tests.failover --rounds 100
python -m tests.failover --rounds 30 --kills --flush sync --min-insync-replicas 2
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from pathlib import Path

from tests.failover.campaign import run_campaign
from tests.failover.world import Settings


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.failover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", action="store_true", help="kill -9 of the master only")
    parser.add_argument("--mode", default="sync_master", choices=["sync_master"])
    parser.add_argument("--flush", default="async", choices=["async", "sync"])
    parser.add_argument("--min-insync-replicas", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep all files there")
    chosen = parser.parse_args()
    settings = Settings(
        mode=chosen.mode,
        flush_mode=chosen.flush,
        min_insync_replicas=chosen.min_insync_replicas,
    )
    # Messages fail on purpose, thousands of times.
    logging.getLogger("aerobee.consumer_client.failed_calls").disabled = True
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="aerobee-failover-") as folder:
        figures = asyncio.run(
            run_campaign(
                chosen.folder or Path(folder),
                rounds=chosen.rounds,
                seed=chosen.seed,
                settings=settings,
                kills_only=chosen.kills,
                say=lambda line: print(line, flush=True),
            )
        )
    for what in sorted({what for what, _ in figures.pauses_s}):
        pauses = sorted(pause_s for name, pause_s in figures.pauses_s if name == what)
        middle, p95 = pauses[len(pauses) // 2], pauses[int(0.95 * len(pauses))]
        print(f"{what}: {len(pauses)} x, median {middle:.2f} s, p95 {p95:.2f} s")
    print(f"seed {chosen.seed}, {time.monotonic() - began:.0f} s: {figures}")


if __name__ == "__main__":
    main()
