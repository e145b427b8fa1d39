"""Many seeds of one world, on several processes, and reports of those that fail."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from importlib import import_module
from typing import Any, Generic, Protocol, Self, TypeVar

from tests.simulation.jobs import run_pieces

TRACE_LINES_MAX = 120
WORLDS = ("cluster", "power_cuts", "timers", "send_backs", "pops")
"""Folders of this package; the module `campaign` of each has its CAMPAIGN."""


@dataclass(slots=True)
class Figures:
    """What happened in one run, or in many. A world adds its own, all of them numbers."""

    runs: int = 0

    def add(self, other: Self) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


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
class Campaign(Generic[F]):
    """One of WORLDS, run seed by seed."""

    world: str
    run_seed: RunSeed
    figures: Callable[[], F]
    true_variant: Callable[[], Any]
    mutants: Mapping[str, Callable[[], Any]]
    """Deliberately broken variants, by name."""
    trace_title: str
    exhaustive: Callable[[Any], Iterable[str]] | None = None
    """Tries all there is of something small on a variant, without seeds; yields what was tried."""

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
        return run_pieces(partial(_run_piece, self.world, mutant), seeds, jobs=jobs)

    def first_caught(self, mutant: str, seeds: range) -> int:
        """The first of the seeds that catches a mutant. The correct variant passes with it, so it
        is the mutation that was caught."""
        (seed,) = self.run_seeds(seeds, mutant, failures_max=1).failures
        self.run_seed(seed, variant=self.true_variant())
        return seed

    def command(self, seed: int, mutant: str = "") -> str:
        """The command that repeats a seed."""
        words = [f"python -m tests.simulation {self.world}", f"--seed {seed}", "--trace"]
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


def campaign_of(world: str) -> Campaign[Any]:
    """Loads that world, and no other."""
    campaign: Campaign[Any] = import_module(f"tests.simulation.{world}.campaign").CAMPAIGN
    return campaign


def silence() -> None:
    """The product's logs of deliberate faults would hide the report."""
    logging.disable()


def _run_piece(world: str, mutant: str, seeds: range) -> Result[Any]:
    """In another process, which finds the campaign by name."""
    silence()
    return campaign_of(world).run_seeds(seeds, mutant)
