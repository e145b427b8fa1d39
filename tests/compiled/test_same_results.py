"""The same inputs give the same bytes and decisions in both forms."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aerobee.rpc.core import frames
from tests.compiled.recorded import BATCHES, LIVES, ROOT, STREAMS
from tests.support.compiled_form import is_compiled


def recorded(*options: str) -> list[str]:
    words = [sys.executable, "-m", "tests.compiled.recorded", *options]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not is_compiled(frames), reason="nothing is compiled: `make compiled-test`")
@pytest.mark.timeout(600)
def test_frames_batches_and_simulated_lives_are_those_of_python() -> None:
    [pure_from, *pure], again = recorded("--pure"), recorded("--pure")[1:]
    [compiled_from, *compiled] = recorded()
    assert (pure_from[-3:], compiled_from[-3:]) == (".py", ".so")
    assert len(pure) == len(compiled) == 2 * STREAMS + BATCHES + sum(LIVES.values())
    # Some streams depend on the time, or on the order in which tasks end.
    sure = [number for number, line in enumerate(pure) if line == again[number]]
    assert len(sure) > 0.95 * len(pure)
    assert [compiled[number] for number in sure] == [pure[number] for number in sure]
