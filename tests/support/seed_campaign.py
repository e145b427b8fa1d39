"""Simulations by seed: many seeds on several processes, reports of failures, and the command for
both. What is simulated is a parameter.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Generic, Protocol, Self, TypeVar

from tests.support.seed_runs import run_pieces

TRACE_LINES_MAX = 120
_TOLD_MAX = 3
_TELL_EVERY_S = 5.0


class Figures(Protocol):
    """What happened in one run, or in many."""

    runs: int

    def add(self, other: Self) -> None: ...


class RunSeed(Protocol):
    """Raises what is wrong."""

    def __call__(
        self, seed: int, *, variant: Any = None, trace: Callable[[str], None] | None = None
    ) -> Any: ...


F = TypeVar("F", bound=Figures)


@dataclass(slots=True)
class Result(Generic[F]):
    """For a range of seeds: figures of those that passed, and seed -> violation for the others."""

    figures: F
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Result[F]) -> None:
        self.figures.add(other.figures)
        self.failures.update(other.failures)


@dataclass(frozen=True)
class SeedCampaign(Generic[F]):
    """`package` is what `python -m` runs; its module `campaign` has this object as CAMPAIGN."""

    package: str
    run_seed: RunSeed
    figures: Callable[[], F]
    true_variant: Callable[[], Any]
    mutants: Mapping[str, Callable[[], Any]]
    """Deliberately broken variants, by name."""
    trace_title: str

    def variant_of(self, mutant: str) -> Any:
        """The broken variant of that name; with an empty name the correct one."""
        return self.mutants[mutant]() if mutant else self.true_variant()

    def run_seeds(
        self, seeds: Iterable[int], mutant: str = "", *, failures_max: int = 10
    ) -> Result[F]:
        """One after another; ends early after this many failures."""
        result = Result(self.figures())
        for seed in seeds:
            try:
                result.figures.add(self.run_seed(seed, variant=self.variant_of(mutant)))
            except Exception as error:
                result.failures[seed] = f"{type(error).__name__}: {error}"
                if len(result.failures) >= failures_max:
                    break
        return result

    def run_in_processes(self, seeds: range, mutant: str = "", *, jobs: int) -> Iterator[Result[F]]:
        """The results for pieces of the range, as they arrive."""
        return run_pieces(partial(_run_piece, self.package, mutant), seeds, jobs=jobs)

    def first_caught(self, mutant: str, seeds: range) -> int:
        """The first of the seeds that catches a mutant. The correct variant passes with it, so it
        is the mutation that was caught."""
        (seed,) = self.run_seeds(seeds, mutant, failures_max=1).failures
        self.run_seed(seed, variant=self.true_variant())
        return seed

    def command(self, seed: int, mutant: str = "") -> str:
        """The command that repeats a seed."""
        words = [f"python -m {self.package}", f"--seed {seed}", "--trace"]
        if mutant:
            words.append(f"--mutant {mutant}")
        return " ".join(words)

    def describe_failure(
        self, seed: int, mutant: str = "", *, lines_max: int = TRACE_LINES_MAX
    ) -> str:
        """Everything needed to repeat a seed and to see what went wrong in it."""
        trace: list[str] = []
        try:
            self.run_seed(seed, variant=self.variant_of(mutant), trace=trace.append)
        except Exception as error:
            told = traceback.format_exception(error, limit=-4)
            violated = f"{type(error).__name__}: {error}"
        else:
            told, violated = [], "nothing: the seed passes now"
        left_out = len(trace) - lines_max
        head = [trace[0], f"    ... {left_out} lines left out ..."] if left_out > 0 else []
        return "\n".join(
            [
                f"seed {seed} violates a promise:",
                f"    {violated}",
                f"repeat it: {self.command(seed, mutant)}",
                f"{self.trace_title}:",
                *head,
                *trace[-lines_max:],
                "".join(told),
            ]
        )


def _run_piece(package: str, mutant: str, seeds: range) -> Result[Any]:
    """In another process, which finds the campaign by name."""
    campaign: SeedCampaign[Any] = import_module(f"{package}.campaign").CAMPAIGN
    _silence()
    return campaign.run_seeds(seeds, mutant)


def parser_of(campaign: SeedCampaign[Any]) -> argparse.ArgumentParser:
    """Options of the command; a simulation may add its own."""
    parser = argparse.ArgumentParser(prog=f"python -m {campaign.package}")
    parser.add_argument("--seeds", type=int, default=2_000, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first one")
    parser.add_argument("--every", type=int, default=1, help="the distance from one to the next")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: show all that happens")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--mutant", default="", choices=sorted(campaign.mutants), help="broken so")
    return parser


def run_command(campaign: SeedCampaign[Any], arguments: argparse.Namespace) -> int:
    """Do what the options of `parser_of` ask for; the exit code."""
    _silence()
    if arguments.seed is not None:
        return _run_one(campaign, arguments.seed, arguments.mutant, with_trace=arguments.trace)
    return _run_many(campaign, arguments)


def _silence() -> None:
    """The product's logs of deliberate faults would hide the report."""
    logging.disable()


def main(campaign: SeedCampaign[Any], words: Sequence[str] | None = None) -> int:
    return run_command(campaign, parser_of(campaign).parse_args(words))


def _run_one(campaign: SeedCampaign[Any], seed: int, mutant: str, *, with_trace: bool) -> int:
    result = campaign.run_seeds(range(seed, seed + 1), mutant)
    if result.failures:
        print(campaign.describe_failure(seed, mutant, lines_max=1 << 30 if with_trace else 60))
        return 1
    if with_trace:
        campaign.run_seed(seed, variant=campaign.variant_of(mutant), trace=print)
    print(f"seed {seed} passes: {result.figures}")
    return 0


def _run_many(campaign: SeedCampaign[Any], arguments: argparse.Namespace) -> int:
    first, every = arguments.first, arguments.every
    seeds = range(first, first + every * arguments.seeds, every)
    total = Result(campaign.figures())
    began = told = time.monotonic()
    for result in campaign.run_in_processes(seeds, arguments.mutant, jobs=arguments.jobs):
        for seed, violated in result.failures.items():
            print(f"seed {seed}: {violated}\n    {campaign.command(seed, arguments.mutant)}")
            sys.stdout.flush()
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
        print(campaign.describe_failure(seed, arguments.mutant))
    print(f"{total.figures}, in {duration_s:.0f} s; {len(total.failures)} seeds failed")
    return 1 if total.failures else 0
