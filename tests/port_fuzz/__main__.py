"""Fuzzed requests and HTTP/2 attacks against all ports of real clusters: `make fuzz-ports`.

    python -m tests.port_fuzz --requests 2000000 --seed 1
    python -m tests.port_fuzz --requests 20000 --shape access --folder /tmp/attacked

Four clusters of two replica sets, with access control and without, with TLS and without; then one
where nodes and super users do all that they may. Each request, and each message of a stream, is
one of the millions; frames of HTTP/2 attacks come on top. A watchman sends and receives among the
attackers. What must hold:

- no process ends, no log has a traceback, no answer is a bug of the server;
- the logs and each process's own memory grow by a bounded amount;
- the watchman loses nothing, gets nothing twice, and no message takes it 100 ms longer than before.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.port_fuzz.campaign import SEEDS_OF_A_PHASE, Plan, Report, attack
from tests.port_fuzz.cluster import Shape

SHAPES: Final = {
    "open": Shape(access=False, tls=False),
    "access": Shape(access=True, tls=False),
    "tls": Shape(access=False, tls=True),
    "both": Shape(access=True, tls=True),
}
INSIDERS: Final = "insiders"
INSIDERS_SHARE: Final = 0.04


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.port_fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--callers", type=int, default=2, help="processes that make calls")
    parser.add_argument("--shape", choices=[*SHAPES, INSIDERS], help="only this one")
    parser.add_argument("--folder", type=Path, help="keep all files there")
    chosen = parser.parse_args()
    names = [chosen.shape] if chosen.shape else [*SHAPES, INSIDERS]
    whole, reports = Report(SHAPES["open"]), []
    with ExitStack() as stack:
        folder = chosen.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for number, name in enumerate(names):
            share = 1.0
            if not chosen.shape:
                share = INSIDERS_SHARE if name == INSIDERS else (1 - INSIDERS_SHARE) / len(SHAPES)
            plan = Plan(
                requests=int(chosen.requests * share),
                seed=chosen.seed + number * SEEDS_OF_A_PHASE,
                callers=chosen.callers,
                insiders=name == INSIDERS,
            )
            shape = SHAPES.get(name, SHAPES["access"])
            where = folder / name
            where.mkdir(parents=True, exist_ok=True)
            _say(f"=== {name}: {shape}, {plan.requests:,} requests from seed {plan.seed}")
            report = attack(where, shape, plan)
            reports.append(report)
            _tell(report)
            whole.tally.add(report.tally)
            whole.frames.update(report.frames)
            whole.attacks.update(report.attacks)
    _say("=== all")
    _tell(whole)
    wrong = sum(len(report.told) for report in reports)
    _say(
        f"{whole.tally.messages:,} requests in {whole.tally.calls:,} calls, "
        f"{sum(whole.frames.values()):,} frames in {sum(whole.attacks.values()):,} attacks: "
        + (f"{wrong} things went wrong" if wrong else "nothing broke")
    )
    return 1 if wrong else 0


def _tell(report: Report) -> None:
    tally = report.tally
    for title, counts in (
        ("requests by who made them", tally.by_kind),
        ("requests by method", tally.by_method),
        ("answers", tally.answers),
        ("attacks", report.attacks),
        ("their frames, or connections", report.frames),
    ):
        _say(f"{title}:")
        for name, count in sorted(counts.items()):
            _say(f"{count:12,} {name}")
    for line in report.lines:
        _say(line)
    for told in report.told:
        _say(f"WRONG: {told}")


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
