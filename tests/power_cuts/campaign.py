"""Many seeds, on several processes, and what is told of those that fail."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from tests.power_cuts.driver import Variant
from tests.power_cuts.machine import Figures
from tests.power_cuts.mutants import MUTANTS
from tests.power_cuts.scenario import run_seed
from tests.support.seed_runs import run_pieces

_TRACE_LINES_MAX = 120


@dataclass(slots=True)
class Result:
    """Of a range of seeds: figures of those that passed, seed -> what was violated of others."""

    figures: Figures = field(default_factory=Figures)
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Result) -> None:
        self.figures.add(other.figures)
        self.failures.update(other.failures)


def variant_of(mutant: str) -> Variant:
    """The broken store of that name; with an empty name the true one."""
    return MUTANTS[mutant]() if mutant else Variant()


def run_seeds(seeds: range, mutant: str = "", *, failures_max: int = 10) -> Result:
    """One after the other; ends early after so many failures."""
    result = Result()
    for seed in seeds:
        try:
            result.figures.add(run_seed(seed, variant=variant_of(mutant)))
        except Exception as error:
            result.failures[seed] = f"{type(error).__name__}: {error}"
            if len(result.failures) >= failures_max:
                break
    return result


def run_in_processes(seeds: range, mutant: str, *, jobs: int) -> Iterator[Result]:
    """The results of pieces of the range, as they come."""
    return run_pieces(partial(run_seeds, mutant=mutant), seeds, jobs=jobs)


def command(seed: int, mutant: str = "") -> str:
    """What repeats a seed."""
    words = ["python -m tests.power_cuts", f"--seed {seed}", "--trace"]
    if mutant:
        words.append(f"--mutant {mutant}")
    return " ".join(words)


def describe_failure(seed: int, mutant: str = "", *, lines_max: int = _TRACE_LINES_MAX) -> str:
    """All that is needed to repeat a seed and to see what went wrong in it."""
    trace: list[str] = []
    try:
        run_seed(seed, variant=variant_of(mutant), trace=trace.append)
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
            f"repeat it: {command(seed, mutant)}",
            "what happened (numbered lines are operations of the disk):",
            *head,
            *trace[-lines_max:],
            "".join(told),
        ]
    )
