"""A range of seeds on several processes, in pieces."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import TypeVar

_SEEDS_PER_TASK = 100

R = TypeVar("R")


def run_pieces(run: Callable[[range], R], seeds: range, *, jobs: int) -> Iterator[R]:
    """The results of `run`, which must be picklable, for pieces of the range, as they arrive."""
    pieces = _pieces(seeds)
    if jobs == 1:
        for only in pieces:
            yield run(only)
        return
    # A fork of this process would inherit gRPC state from other tests, and might die of it.
    context = get_context("forkserver")
    with ProcessPoolExecutor(jobs, context, _settle, (run,)) as processes:
        waiting: set[Future[R]] = set()
        while True:
            while len(waiting) < 2 * jobs and (piece := next(pieces, None)) is not None:
                waiting.add(processes.submit(run, piece))
            if not waiting:
                return
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def _settle(_run: object) -> None:
    """The modules are loaded, since `_run` is. They are not garbage: scanning them again and again
    would take most of a process's time."""
    gc.freeze()


def _pieces(seeds: range) -> Iterator[range]:
    for first in range(0, len(seeds), _SEEDS_PER_TASK):
        yield seeds[first : first + _SEEDS_PER_TASK]
