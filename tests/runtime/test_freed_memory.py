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


PEAK = """
from aerobee.runtime.freed_memory import FreedMemory, UNUSED_BYTES_MIN

def held():
    resident, shared = map(int, open("/proc/self/statm").read().split()[1:3])
    return (resident - shared) * 4096

freed = FreedMemory()
before = held()
assert not freed.give_back()
# As handshakes leave it: some of what was made at the same time stays.
many = [bytearray(20_000 + size % 7_000) for size in range(10_000)]
stays = many[::100]
assert not freed.give_back(), "all of it is used"
del many
kept = held() - before
is_given = freed.give_back()
print(kept, is_given, held() - before, UNUSED_BYTES_MIN, freed.give_back())
"""


def test_what_a_peak_has_left_behind_is_given_back_once() -> None:
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, check=True)
    kept, is_given, left, worth, again = done.stdout.split()
    if is_given == b"False" and int(kept) < int(worth):
        pytest.skip("the C library gives it back by itself")
    assert is_given == b"True"
    assert int(left) < int(kept) // 4
    assert again == b"False", "what cannot be given back is not tried again"
