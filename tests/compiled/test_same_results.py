"""The same inputs give the same bytes and decisions in both forms."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aerobee.rpc.core import frames
from tests.compiled.recorded import BATCHES, LIVES, ROOT, STREAMS
from tests.support.compiled_form import is_compiled

REPETITIONS = 4


def recorded(*options: str) -> list[str]:
    words = [sys.executable, "-m", "tests.compiled.recorded", *options]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not is_compiled(frames), reason="nothing is compiled: `make compiled-test`")
@pytest.mark.timeout(600)
def test_frames_batches_and_simulated_lives_are_those_of_python() -> None:
    [pure_from, *pure], [compiled_from, *compiled] = recorded("--pure"), recorded()
    assert (pure_from[-3:], compiled_from[-3:]) == (".py", ".so")
    assert len(pure) == len(compiled) == 2 * STREAMS + BATCHES + sum(LIVES.values())
    differing = {number for number, line in enumerate(pure) if line != compiled[number]}
    assert len(differing) < 0.05 * len(pure)
    # Some streams depend on the time, or on the order in which tasks end: each form gives one of a
    # few results, and both give the same ones.
    of_pure = {number: {pure[number]} for number in differing}
    of_compiled = {number: {compiled[number]} for number in differing}
    for _ in range(REPETITIONS):
        differing = {n for n in differing if of_pure[n].isdisjoint(of_compiled[n])}
        if not differing:
            break
        again, compiled_again = recorded("--pure")[1:], recorded()[1:]
        for number in differing:
            of_pure[number].add(again[number])
            of_compiled[number].add(compiled_again[number])
    assert [n for n in differing if of_pure[n].isdisjoint(of_compiled[n])] == []
