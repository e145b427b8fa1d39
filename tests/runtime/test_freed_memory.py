"""A process that frees and asks for buffers again and again does not go to the kernel each time."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource
from aerobee.runtime.freed_memory import keep_freed_memory

def faults_of_a_thousand_rounds():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(1_000):
        frames = [bytes(512 * 1024) for _ in range(8)]
        del frames
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if not keep_freed_memory():
    print("not here")
else:
    faults_of_a_thousand_rounds()  # touches the memory that is kept
    print(faults_of_a_thousand_rounds())
"""


def test_buffers_are_made_of_memory_that_was_freed() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True).stdout
    if said.strip() == b"not here":
        pytest.skip("the C library has no such setting")
    assert int(said) < 1_000, "pages were mapped again in most rounds"
