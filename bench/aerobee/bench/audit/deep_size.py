"""How a deep audit scales: three stores, each read by one process as an executor reads it, and by
Spark. Reports processor seconds, memory and rates, and draws them.

    python -m aerobee.bench.audit.deep_size FOLDER [--records 5000000,10000000,20000000]
        [--plot docs/internals/audit-size.svg] [--spark] [--check-bodies] [--one-queue]

Stores that already exist in FOLDER are reused.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aerobee.bench.audit.generated_store import GeneratedStore
from aerobee.bench.audit.spark_cpu import SparkRun, timed_run
from aerobee.offset_audit.sources.store.conditions import Conditions
from aerobee.offset_audit.sources.store.folders import find_stores
from aerobee.offset_audit.sources.store.kinds import KINDS, Wanted
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.ranges_rows import SUMMARIES

BODY_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """One store read once: processor and wall-clock seconds, and the reader's peak memory."""

    records: int
    cpu_s: float
    wall_s: float
    memory_mib: float
    rows: int
    parts: int
    longest_s: float
    """Processor seconds of the longest part: no run is shorter, on any number of cores."""


def measure(root: str, records: int, *, check_bodies: bool) -> Measured:
    """Read everything of a store in this process."""
    options = StoreOptions(paths=(root,), kind=SUMMARIES, check_bodies=check_bodies)
    kind = KINDS[SUMMARIES]
    wanted = Wanted(options, kind.default_columns(options), Conditions())
    rows = 0
    longest_s = 0.0
    cpu, wall = time.process_time(), time.perf_counter()
    parts = kind.plan(find_stores([root]), wanted)
    for partition in parts:
        before = time.process_time()
        for batch in kind.batches(partition, wanted):
            rows += batch.num_rows
        longest_s = max(longest_s, time.process_time() - before)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Measured(
        records,
        time.process_time() - cpu,
        time.perf_counter() - wall,
        peak_kib / 1024,
        rows,
        len(parts),
        longest_s,
    )


def measure_apart(root: Path, records: int, *, check_bodies: bool) -> Measured:
    """The same in a process of its own, with fresh memory."""
    command = [sys.executable, "-m", __spec__.name, str(root), "--one", str(records)]
    command += ["--check-bodies"] * check_bodies
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Measured(**json.loads(output))


def measure_spark(stores: Sequence[tuple[int, Path]], *, check_bodies: bool) -> list[SparkRun]:
    """Each store through Spark on two cores, after warm-up."""
    from aerobee.offset_audit.run.session import close_session, open_session

    session = open_session("local[2]")
    found: list[SparkRun] = []
    try:
        for records, root in [stores[0], *stores]:
            source = session.read.format("aerobee.store").option("kind", SUMMARIES)
            source = source.option("checkBodies", str(check_bodies).lower())
            found.append(timed_run(records, BODY_BYTES, source.load(str(root)).count))
    finally:
        close_session(session)
    return found[1:]


# ------------------------------------------------------------------------------------ drawing

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 640, 300, 70, 30, 560, 240


def draw(found: Sequence[Measured]) -> str:
    """An SVG: processor seconds (left scale) and memory (right scale) over messages."""
    most = max(one.records for one in found)
    cpu_max = max(one.cpu_s for one in found) * 1.15
    memory_max = max(one.memory_mib for one in found) * 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<path d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}V{_TOP}" fill="none" stroke="#888"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        y = _BOTTOM - share * (_BOTTOM - _TOP)
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.0f}" text-anchor="end" fill="#1f5fa8">'
            f"{share * cpu_max:.0f} s</text>"
            f'<text x="{_RIGHT + 6}" y="{y + 4:.0f}" fill="#b5541c">'
            f"{share * memory_max:.0f} MiB</text>"
        )
    for values, top, colour in (
        ([one.cpu_s for one in found], cpu_max, "#1f5fa8"),
        ([one.memory_mib for one in found], memory_max, "#b5541c"),
    ):
        places = [
            (
                _LEFT + one.records / most * (_RIGHT - _LEFT) * 0.95,
                _BOTTOM - value / top * (_BOTTOM - _TOP),
            )
            for one, value in zip(found, values, strict=True)
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places]
    for one in found:
        x = _LEFT + one.records / most * (_RIGHT - _LEFT) * 0.95
        parts.append(
            f'<text x="{x:.1f}" y="{_BOTTOM + 18}" text-anchor="middle">'
            f"{one.records / 1e6:g} million</text>"
        )
    parts.append(
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">messages in the store: '
        '<tspan fill="#1f5fa8">processor seconds</tspan> and '
        '<tspan fill="#b5541c">memory of one reader</tspan></text></svg>\n'
    )
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", default="5000000,10000000,20000000")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--check-bodies", action="store_true")
    parser.add_argument("--one-queue", action="store_true", help="it has all the messages")
    parser.add_argument("--one", type=int)
    asked = parser.parse_args()
    if asked.one:
        one = measure(str(asked.folder), asked.one, check_bodies=asked.check_bodies)
        print(json.dumps({name: getattr(one, name) for name in Measured.__slots__}))
        return
    stores = []
    for records in map(int, asked.records.split(",")):
        root = asked.folder / f"{'q' if asked.one_queue else 's'}{records // 1_000_000}"
        if not root.exists():
            queues = {"topics": 1, "queues_each": 1} if asked.one_queue else {}
            GeneratedStore(root, records, BODY_BYTES, **queues).write()
        stores.append((records, root))
    found = []
    for records, root in stores:
        one = measure_apart(root, records, check_bodies=asked.check_bodies)
        found.append(one)
        rate = one.records / one.cpu_s / 1e6
        print(
            f"{one.records:,} messages: {one.cpu_s:.1f} s of one core ({one.wall_s:.1f} s by the "
            f"clock), {rate:.2f} million/s, {one.memory_mib:.0f} MiB, {one.rows:,} rows; "
            f"the longest of {one.parts} parts: {one.longest_s:.2f} s",
            flush=True,
        )
    if asked.plot is not None:
        asked.plot.write_text(draw(found))
    if asked.spark:
        for run in measure_spark(stores, check_bodies=asked.check_bodies):
            through = run.throughput
            print(
                f"Spark, two cores: {through.messages:,} messages in {through.elapsed_s:.1f} s by "
                f"the clock; {run.note(2)}"
            )


if __name__ == "__main__":
    main()
