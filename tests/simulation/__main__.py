"""Runs seeds of a world and reports failures.

python -m tests.simulation cluster --seeds 100000 --jobs 2
python -m tests.simulation timers --seed 4711 --trace
python -m tests.simulation power_cuts --exhaustive
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.simulation.campaign import WORLDS, Campaign, Result, campaign_of, silence

_TOLD_MAX = 3
_TELL_EVERY_S = 5.0


def main(words: Sequence[str] | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(words)
    campaign = campaign_of(arguments.world)
    mutant: str = arguments.mutant
    if mutant and mutant not in campaign.mutants:
        parser.error(f"{arguments.world} has no mutant {mutant}, but {sorted(campaign.mutants)}")
    if arguments.exhaustive and campaign.exhaustive is None:
        parser.error(f"{arguments.world} has nothing that can be tried exhaustively")
    silence()
    if arguments.exhaustive and campaign.exhaustive is not None:
        for tried in campaign.exhaustive(campaign.variant_of(mutant)):
            print(tried)
        return 0
    if arguments.seed is not None:
        return _run_one(campaign, arguments.seed, mutant, with_trace=arguments.trace)
    first, every = arguments.first, arguments.every
    seeds = range(first, first + every * arguments.seeds, every)
    return _run_many(campaign, seeds, mutant, jobs=arguments.jobs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("world", choices=WORLDS)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first one")
    parser.add_argument("--every", type=int, default=1, help="the distance from one to the next")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: show all that happens")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--mutant", default="", help="a world with this known error")
    parser.add_argument(
        "--exhaustive", action="store_true", help="of power_cuts: short lives, cut everywhere"
    )
    return parser


def _run_one(campaign: Campaign[Any], seed: int, mutant: str, *, with_trace: bool) -> int:
    result = campaign.run_seeds(range(seed, seed + 1), mutant)
    if result.failures:
        print(campaign.describe_failure(seed, mutant, lines_max=1 << 30 if with_trace else 60))
        return 1
    if with_trace:
        campaign.run_seed(seed, variant=campaign.variant_of(mutant), trace=print)
    print(f"seed {seed} passes: {result.figures}")
    return 0


def _run_many(campaign: Campaign[Any], seeds: range, mutant: str, *, jobs: int) -> int:
    total = Result(campaign.figures())
    began = told = time.monotonic()
    for result in campaign.run_in_processes(seeds, mutant, jobs=jobs):
        for seed, violated in result.failures.items():
            print(f"seed {seed}: {violated}\n    {campaign.command(seed, mutant)}", flush=True)
        total.add(result)
        now = time.monotonic()
        if now - told >= _TELL_EVERY_S:
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
        print(campaign.describe_failure(seed, mutant))
    print(f"{total.figures}, in {duration_s:.0f} s; {len(total.failures)} seeds failed")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
