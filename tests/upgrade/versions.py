"""Two versions of the product on one machine: the working tree, and the newest release."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
RELEASED = CHECKOUT / "deploy/released.toml"
PYTHON = (sys.executable, "-S", "-P")
"""Without `.pth` files."""


class NotThere(Exception):
    """The release is not in this checkout; says why and what to do."""


@dataclass(frozen=True)
class Version:
    """A tree, and how its programs are run."""

    name: str
    tree: Path

    @cached_property
    def environment(self) -> dict[str, str]:
        """Its packages, and what is installed but for this project, which a `.pth` file brings."""
        roots = sorted(path.parent for path in self.tree.glob("*/aerobee") if path.is_dir())
        places = [*roots, self.tree, sysconfig.get_path("purelib")]
        return {"PYTHONPATH": os.pathsep.join(map(str, places))}

    def command(self, *words: str) -> tuple[str, ...]:
        """`aerobee ...`, to be run in its environment."""
        # With an option of Python's it is executed, and not the fork of a process that has loaded
        # the working tree's modules (tests/support/warm_start.py).
        return *PYTHON, "-m", "aerobee.cli", *words

    def run(self, *words: str) -> str:
        """What a command prints; AssertionError if it fails."""
        ended = subprocess.run(
            self.command(*words),
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{self.name}: aerobee {' '.join(words)}\n{ended.stderr}"
        return ended.stdout

    def check(self, process_id: int) -> None:
        """AssertionError unless this process was executed in its environment."""
        variables = Path(f"/proc/{process_id}/environ").read_text().split("\0")
        assert f"PYTHONPATH={self.environment['PYTHONPATH']}" in variables, self.name

    def check_modules(self) -> None:
        """AssertionError unless in its environment its own modules are found."""
        source = (
            "import aerobee.broker.app as a, aerobee.client_core as b, aerobee.cli as c;"
            "print(a.__file__, b.__file__, c.__file__)"
        )
        found = subprocess.run(
            [*PYTHON, "-c", source],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert all(Path(one).is_relative_to(self.tree) for one in found), found


def working_tree() -> Version:
    return Version("new", CHECKOUT)


def released(folder: Path, file: Path = RELEASED) -> Version:
    """The newest release, exported into the folder.

    Raises:
        NotThere: git or the release's commit is missing.
    """
    commit = tomllib.loads(file.read_text())["commit"]
    archive = folder.with_suffix(".tar")
    command = ["git", "-C", str(CHECKOUT), "archive", "--output", str(archive), commit]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise NotThere("there is no git, which has the release's files") from None
    except subprocess.CalledProcessError as error:
        raise NotThere(
            f"commit {commit} of {file.name} is not in this checkout, which may be shallow "
            f"(`git fetch --unshallow`): {error.stderr.strip()}"
        ) from None
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    return Version("released", folder)
