"""Runs seeds of the cluster simulation and tells of those that fail.

python -m tests.cluster_simulation --seeds 100000 --jobs 2
python -m tests.cluster_simulation --seed 4711 --trace
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.cluster_simulation.campaign import (
    Result,
    command,
    describe_failure,
    run_in_processes,
    run_seeds,
    variant_of,
)
from tests.cluster_simulation.mutants import MUTANTS
from tests.cluster_simulation.scenario import run_seed

_TOLD_MAX = 3


def main() -> int:
    arguments = _parse()
    if arguments.seed is not None:
        return _run_one(arguments.seed, arguments.mutant, with_trace=arguments.trace)
    return _run_many(arguments)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster_simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: show all that happens")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--mutant", default="", choices=sorted(MUTANTS), help="a broken cluster")
    return parser.parse_args()


def _run_one(seed: int, mutant: str, *, with_trace: bool) -> int:
    result = run_seeds(range(seed, seed + 1), mutant)
    if result.failures:
        print(describe_failure(seed, mutant, lines_max=1 << 30 if with_trace else 60))
        return 1
    if with_trace:
        run_seed(seed, variant=variant_of(mutant), trace=print)
    print(f"seed {seed} passes: {result.figures}")
    return 0


def _run_many(arguments: argparse.Namespace) -> int:
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    total = Result()
    began = told = time.monotonic()
    for result in run_in_processes(seeds, arguments.mutant, jobs=arguments.jobs):
        for seed, violated in result.failures.items():
            print(f"seed {seed}: {violated}\n    {command(seed, arguments.mutant)}", flush=True)
        total.add(result)
        now = time.monotonic()
        if now - told >= 5.0:
            told = now
            done = total.figures.runs + len(total.failures)
            print(
                f"{done} of {len(seeds)} seeds, {done / (now - began):.0f}/s, "
                f"{len(total.failures)} failed",
                file=sys.stderr,
                flush=True,
            )
    duration_s = time.monotonic() - began
    for seed in sorted(total.failures)[:_TOLD_MAX]:
        print(describe_failure(seed, arguments.mutant))
    print(f"{total.figures}, in {duration_s:.0f} s; {len(total.failures)} seeds failed")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
