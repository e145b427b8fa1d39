"""How crowded this machine is: how much longer a little work takes than it needs.

Everything here shares few cores, also with whatever else runs: a broker that opens its folder again
takes ten times as long if nine others want its core. What a test allows for is measured meanwhile,
in a process of its own, since Python's threads would hold each other up.

python3 -m tests.kubernetes.pods.crowd
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

WORK_S = 0.03
PAUSE_S = 0.5
SAMPLES_MAX = 1_000


class Crowd:
    """Use `open_crowd`."""

    def __init__(self) -> None:
        self.samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        """When each ended, and its factor."""
        self.process_id = 0

    def factor(self, since_s: float) -> float:
        """The mean of those measured since then, by the monotonic clock; about 1 on an idle
        machine. Of none it is the last one before."""
        since = [factor for ended_s, factor in self.samples if ended_s >= since_s]
        if not since:
            since = [self.samples[-1][1] if self.samples else 1.0]
        return sum(since) / len(since)

    async def read(self, process: asyncio.subprocess.Process) -> None:
        self.process_id = process.pid
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self.samples.append((time.monotonic(), float(line)))


@asynccontextmanager
async def open_crowd() -> AsyncIterator[Crowd]:
    crowd = Crowd()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.kubernetes.pods.crowd"), stdout=asyncio.subprocess.PIPE
    )
    reading = asyncio.create_task(crowd.read(process))
    try:
        yield crowd
    finally:
        process.kill()
        await process.wait()
        await reading


def main() -> None:
    while True:
        began_s, used_s = time.monotonic(), time.process_time()
        while time.process_time() - used_s < WORK_S:
            pass
        print(f"{(time.monotonic() - began_s) / WORK_S:.2f}", flush=True)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
