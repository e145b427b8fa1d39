"""The Pythons of this machine, and environments of them that know nothing of this repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 180.0
NO_TESTS_EXPECTED = ("PYTHONPATH", "PYTEST_ADDOPTS", "VIRTUAL_ENV", "AEROBEE_NAMESERVER")
"""What would reach from this run into a stranger's."""


def run(*words: str | Path, folder: Path, **variables: str) -> str:
    """The standard output of a program that ends well, in an environment without this run's."""
    mine = {name: text for name, text in os.environ.items() if name not in NO_TESTS_EXPECTED}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**mine, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def uv() -> str:
    """`uv run`, which starts the tests, says where it is."""
    own = str(ROOT / ".venv-uv" / "bin" / "uv")
    found = os.environ.get("UV") or shutil.which("uv") or shutil.which(own)
    assert found, "there is no uv: run `make setup`"
    return found


def find_python(version: str) -> str | None:
    """An interpreter of this version, such as 3.12: of the path, of uv, or of pyenv, whose own
    commands work for the chosen versions alone."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path("~/.pyenv").expanduser())
    candidates = [
        shutil.which(f"python{version}"),
        *sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python"))),
    ]
    for candidate in candidates:
        if candidate and _version_of(candidate) == version:
            return candidate
    found = subprocess.run(
        [uv(), "python", "find", "--no-python-downloads", "--managed-python", version],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or None


def _version_of(python: str) -> str:
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run(
        [python, "-c", asked], capture_output=True, text=True, check=False
    ).stdout.strip()


class Environment:
    """A virtual environment in an empty folder."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        run(uv(), "venv", "--quiet", "--python", python, folder / "venv", folder=folder)

    def install(self, *words: str | Path) -> None:
        command = (uv(), "pip", "install", "--quiet", "--python", self.bin / "python")
        run(*command, *words, folder=self.folder)

    def python(self, *words: str | Path) -> str:
        return run(self.bin / "python", *words, folder=self.folder)
