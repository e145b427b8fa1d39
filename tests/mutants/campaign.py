"""Each mutant in a copy of the tree, with its tests: caught or not.

The tree itself is never changed: it may be edited, tested and committed meanwhile. First all tests
run in a copy without an error, for those that fail there prove nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.mutants.mutant import Mutant, Tree, what_is_stale

_RUN_SECONDS_MAX = 300
_TEST_SECONDS_MAX = 60
_LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv*",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "dist",
    "*.so",
    "aerobee__mypyc.py",
)


class Verdict(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"
    """The tests could not tell: they were not found, not imported or not over in time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of the tests of one mutant."""

    verdict: Verdict
    seconds: float
    told: str
    """The test that failed first, or what pytest said at the end."""


@contextmanager
def copy_of(root: Path) -> Iterator[Path]:
    """A copy of the tree, which goes with the context."""
    with TemporaryDirectory(prefix="aerobee-mutants-") as folder:
        yield Path(shutil.copytree(root, Path(folder) / "tree", ignore=_LEFT_OUT))


@contextmanager
def mutated(tree: Path, mutant: Mutant) -> Iterator[None]:
    """The tree with the error in it. Raises ValueError if it cannot be put there."""
    file = Tree(tree).file_of(mutant)
    text = file.read_text()
    try:
        _write(file, mutant.applied_to(text))
        yield
    finally:
        _write(file, text)


def _write(file: Path, text: str) -> None:
    """A compiled file would be believed if its source were as long and of the same second."""
    file.write_text(text)
    shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)


def run_tests(tree: Path, tests: Sequence[str], *options: str) -> Outcome:
    """The named tests on the tree's own sources, up to the first that fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-rfE"]
    command += [f"--timeout={_TEST_SECONDS_MAX}", "-p", "no:cacheprovider", *options, *tests]
    began_s = time.monotonic()
    try:
        ended = subprocess.run(
            command,
            cwd=tree,
            env=_environment(tree),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_RUN_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(Verdict.BROKEN, _RUN_SECONDS_MAX, f"not over in {_RUN_SECONDS_MAX} s")
    verdict = {0: Verdict.SURVIVED, 1: Verdict.CAUGHT}.get(ended.returncode, Verdict.BROKEN)
    failed = re.search(r"^FAILED (\S+)", ended.stdout, re.MULTILINE)
    if failed is None and verdict is Verdict.CAUGHT:
        verdict = Verdict.BROKEN  # an error of a fixture, say
    last = ended.stdout.strip().splitlines()[-1:] or ["pytest said nothing"]
    return Outcome(verdict, time.monotonic() - began_s, failed[1] if failed else last[0])


def _environment(tree: Path) -> dict[str, str]:
    """The tree's packages come first, and what is compiled stays there for the next run."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}
        and not name.startswith("PYTEST_")
    }
    sources = sorted(str(package.parent) for package in tree.glob("*/aerobee"))
    return {**kept, "PYTHONPATH": os.pathsep.join(sources)}


def try_mutant(mutant: Mutant, tree: Path, *options: str) -> Outcome:
    """Whether its tests catch it. An entry that does not fit the tree is BROKEN."""
    stale = what_is_stale(mutant, Tree(tree))
    if stale:
        return Outcome(Verdict.BROKEN, 0.0, stale[0])
    with mutated(tree, mutant):
        return run_tests(tree, mutant.tests, *options)


def run_all(
    mutants: Sequence[Mutant], root: Path, *, jobs: int, options: Sequence[str] = ()
) -> int:
    """Tell of each in order; 1 if one was not caught, or if a test fails without an error.
    `options` are for pytest."""
    with ExitStack() as copies:
        tree = copies.enter_context(copy_of(root))
        if not _pass_without(mutants, tree, jobs, options):
            return 1
        # With what is compiled by now.
        trees: SimpleQueue[Path] = SimpleQueue()
        for each in (tree, *(copies.enter_context(copy_of(tree)) for _ in range(jobs - 1))):
            trees.put(each)

        def run(mutant: Mutant) -> Outcome:
            free = trees.get()
            try:
                return try_mutant(mutant, free, *options)
            finally:
                trees.put(free)

        with ThreadPoolExecutor(jobs) as threads:
            return _tell(mutants, threads.map(run, mutants))


def _pass_without(mutants: Sequence[Mutant], tree: Path, jobs: int, options: Sequence[str]) -> bool:
    """Whether all tests of the mutants that fit the tree pass in it as it is."""
    files = Tree(tree)
    tests = sorted(
        {test for mutant in mutants if not what_is_stale(mutant, files) for test in mutant.tests}
    )
    if not tests:
        return True
    print(f"{len(tests)} tests without a mutant ...", flush=True)
    parallel = ("-n", str(jobs)) if jobs > 1 else ()
    sound = run_tests(tree, tests, *parallel, *options)
    if sound.verdict is Verdict.SURVIVED:
        return True
    print(f"they must pass: {sound.told}")
    return False


def _tell(mutants: Sequence[Mutant], outcomes: Iterable[Outcome]) -> int:
    width = max(len(mutant.name) for mutant in mutants)
    uncaught = []
    for mutant, outcome in zip(mutants, outcomes, strict=True):
        print(
            f"{outcome.verdict:<8} {outcome.seconds:5.1f} s  {mutant.name:<{width}}  "
            f"{outcome.told}",
            flush=True,
        )
        if outcome.verdict is not Verdict.CAUGHT:
            uncaught.append(mutant)
    print(f"{len(mutants) - len(uncaught)} of {len(mutants)} mutants caught")
    for mutant in uncaught:
        print(f"  {mutant.name} at {mutant.at}: {mutant.breaks}")
    return 1 if uncaught else 0
