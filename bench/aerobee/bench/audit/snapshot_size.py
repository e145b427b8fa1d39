"""The snapshot of a large cluster: simulated brokers, one reading of each, and what lags.

    python -m aerobee.bench.audit.snapshot_size --brokers 100

Prints one JSON document. Time counts from before the session's start; `cpu_s` is the processor time
of Spark's JVM and its Python workers, which is more meaningful than wall-clock time on a busy
machine; memory is the peak resident size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aerobee.offset_audit.run.session import audit_session
from aerobee.offset_audit.sources.live.columns import split_tables

LAG_MESSAGES = 10_000
SAMPLE_S = 1.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Processes:
    """Resources of all processes below this one, except the simulated brokers."""

    spared: int
    peak_bytes: dict[str, int] = field(default_factory=dict)
    cpu_s: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """Sample memory and processor time."""
        children: dict[int, list[int]] = {}
        resident: dict[int, tuple[str, int]] = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue  # it has ended
            name, _, rest = text.partition("(")[2].rpartition(")")
            values = rest.split()
            pid = int(folder.name)
            children.setdefault(int(values[1]), []).append(pid)
            resident[pid] = name, int(values[21]) * os.sysconf("SC_PAGE_SIZE")
            if pid != self.spared:
                self.cpu_s[pid] = sum(map(int, values[11:13])) / _TICKS_PER_S
        below = set(_below(children, os.getpid(), self.spared))
        totals: dict[str, int] = {}
        for pid in below:
            name, size = resident[pid]
            totals[name] = totals.get(name, 0) + size
        for name, size in totals.items():
            self.peak_bytes[name] = max(size, self.peak_bytes.get(name, 0))
        self.cpu_s = {pid: used for pid, used in self.cpu_s.items() if pid in below}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Sample while the context is open."""
        ended = threading.Event()

        def sample() -> None:
            while not ended.wait(SAMPLE_S):
                self.look()

        watching = threading.Thread(target=sample, name="processes")
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()


def _below(children: dict[int, list[int]], pid: int, spared: int) -> Iterator[int]:
    for child in children.get(pid, ()):
        if child != spared:
            yield child
            yield from _below(children, child, spared)


def measure(session: SparkSession, nameserver: str) -> dict[str, float]:
    """Read every broker once, keep the rows, and find the commits that are far behind."""
    began_s = time.perf_counter()
    source = session.read.format("aerobee.offsets").option("nameservers", nameserver)
    asked = source.option("firstUnread", "true").load().persist(StorageLevel.MEMORY_AND_DISK)
    rows = asked.count()
    read_s = time.perf_counter() - began_s
    tables = split_tables(asked)
    late = _lagging(tables["commits"], tables["queues"]).count()
    lag_s = time.perf_counter() - began_s - read_s
    asked.unpersist()
    return {"rows": rows, "read_s": read_s, "lagging": late, "lag_s": lag_s}


def _lagging(commits: DataFrame, queues: DataFrame) -> DataFrame:
    queue = ["cluster", "broker_name", "topic", "queue_id"]
    ends = queues.select(*queue, "max_offset")
    return commits.join(ends, queue).where(F.col("max_offset") - F.col("offset") > LAG_MESSAGES)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--driver-memory", default="4g")
    given = parser.parse_args()
    command = [sys.executable, "-m", "aerobee.bench.audit.simulated_brokers"]
    simulated = subprocess.Popen(
        [*command, "--brokers", str(given.brokers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert simulated.stdin is not None
    assert simulated.stdout is not None
    try:
        nameserver = simulated.stdout.readline().strip()
        processes = Processes(simulated.pid)
        began_s = time.perf_counter()
        settings = {"spark.driver.memory": given.driver_memory}
        with processes.watched(), audit_session(settings=settings) as session:
            session_s = time.perf_counter() - began_s
            found = measure(session, nameserver)
            processes.look()
    finally:
        simulated.stdin.close()
        simulated.wait()
    found |= {"brokers": given.brokers, "session_s": session_s}
    found |= {"cpu_s": sum(processes.cpu_s.values())}
    peaks = {f"peak_{name}_mib": size >> 20 for name, size in processes.peak_bytes.items()}
    print(json.dumps({name: round(value, 1) for name, value in {**found, **peaks}.items()}))


if __name__ == "__main__":
    _main()
