"""Tests in forks are told, and fail, as those that are not; a fork that dies fails one test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
import os
from pathlib import Path
import pytest
from tests.support.forked_tests import Forks

def pytest_configure(config):
    config.pluginmanager.register(Forks(2, lambda nodeid: nodeid.partition("::")[0]))

@pytest.fixture(scope="session")
def ended():
    yield
    with open(Path(__file__).with_name("ended"), "a") as file:
        print(os.getpid(), file=file)

@pytest.fixture(scope="module")
def where(ended):
    return os.getpid()
"""
SHARED = """
import os
seen = []

def test_first(where, tmp_path):
    print("printed by the first")
    assert where == os.getpid()
    seen.append(where)

def test_second(where, tmp_path):
    assert seen == [where]
"""
DYING = """
import os

def test_before():
    pass

def test_dies():
    os._exit(7)

def test_after(where):
    pass
"""
FAILING = """
def test_fails():
    print("printed by what failed")
    assert [1] == [2]
"""
FAILS_LATER = """
import time
from pathlib import Path

def test_fails():
    while not Path(__file__).with_name("begun").exists():
        time.sleep(0.01)
    assert False
"""
WAITS = """
import os
import time
from pathlib import Path

def test_waits(where):
    with open(Path(__file__).with_name("begun"), "a") as file:
        print(os.getpid(), file=file)
    time.sleep(100)
"""


def run(folder: Path, *options: str) -> tuple[int, str]:
    """pytest's exit code and what it said of the tests in the folder."""
    (folder / "conftest.py").write_text(CONFTEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_each_file_is_run_by_one_fork_and_each_test_is_told_once(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py", "test_c.py"):
        (tmp_path / name).write_text(SHARED)
    (tmp_path / "test_dying.py").write_text(DYING)
    (tmp_path / "test_failing.py").write_text(FAILING)
    code, told = run(tmp_path)
    assert code == pytest.ExitCode.TESTS_FAILED, told
    assert "2 failed, 8 passed" in told
    for name in ("test_a.py", "test_b.py", "test_c.py"):
        assert told.count(f"PASSED {name}::test_first") == 1
    assert "FAILED test_failing.py::test_fails - assert [1] == [2]" in told
    assert "printed by what failed" in told
    assert "FAILED test_dying.py::test_dies - the fork that ran it ended with 7" in told
    assert "PASSED test_dying.py::test_after" in told
    # Each fork that lives to the end tears down what it set up, once; one ran `test_after`.
    ended = (tmp_path / "ended").read_text().split()
    assert 1 <= len(ended) == len(set(ended)) <= 2


def test_after_the_first_failure_nothing_more_is_begun(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(FAILS_LATER)
    for number in range(3):
        (tmp_path / f"test_b{number}.py").write_text(WAITS)
    code, told = run(tmp_path, "-x")
    assert code == pytest.ExitCode.TESTS_FAILED, told
    assert "1 failed in" in told
    # One waited in each fork at most, and tore down what it had set up.
    begun = (tmp_path / "begun").read_text().split()
    assert 1 <= len(begun) <= 2
    assert set(begun) <= set((tmp_path / "ended").read_text().split())
