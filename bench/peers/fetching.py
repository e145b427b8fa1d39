"""The peers' programs in the user's cache folder: fetched once, on request."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from platform import machine, system

from aerobee.cli.failures import EnvironmentFailure
from peers.processes import said_by

Say = Callable[[str], None]
Fill = Callable[[Path], Awaitable[None]]


def cache_folder() -> Path:
    """This user's folder for everything that `aerobee bench peers` fetches."""
    told = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = told if told.is_absolute() else Path.home() / ".cache"
    return home / "aerobee" / "peers"


def needed_program(name: str, advice: str) -> str:
    """The path of a tool that fetches or builds.

    Raises:
        EnvironmentFailure: it is not installed.
    """
    found = shutil.which(name)
    if found is None:
        raise EnvironmentFailure(f"no `{name}` on the PATH: {advice}")
    return found


async def fill_folder(folder: Path, fill: Fill) -> None:
    """Make `folder` with `fill`, which gets an empty one: it appears only once complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as name:
        whole = Path(name) / "whole"
        whole.mkdir()
        await fill(whole)
        shutil.rmtree(folder, ignore_errors=True)
        whole.rename(folder)


async def fetch_jars(sources: Path, into: Path) -> Path:
    """The folder in `into` with the jars listed in pom.xml and jars.sha256 of `sources`.

    Raises:
        EnvironmentFailure: Maven is missing, or a jar has another checksum.
    """
    maven = needed_program("mvn", "install Maven (Debian: apt-get install maven)")
    jars = into / "jars"
    # Maven writes beside the file that it reads.
    shutil.copy(sources / "pom.xml", into)
    copy = (
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={jars}",
    )
    await said_by((maven, "--batch-mode", "--quiet", *copy), folder=into)
    check_sums(jars, sources / "jars.sha256")
    return jars


def check_sums(folder: Path, sums: Path) -> None:
    """Whether `folder` has exactly the files that `sums` lists, as `sha256sum` writes it.

    Raises:
        EnvironmentFailure: a file is missing, differs, or is not listed.
    """
    wanted = {}
    for line in sums.read_text().splitlines():
        digest, name = line.split()
        wanted[name] = digest
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    wrong = sorted(
        name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
    )
    if wrong:
        raise EnvironmentFailure(
            f"what was fetched is not what {sums.name} lists ({', '.join(wrong)}): nothing of it "
            "is kept; ask the registry's mirror why, or run it again"
        )


async def install_wheel(requirement: str, into: Path, *, python: str, platform: str) -> None:
    """Unpack one wheel with the checksums of `requirement`, for `python` (e.g. "3.11") on
    `platform` (e.g. "manylinux_2_17", on x86_64), without its dependencies.

    Raises:
        EnvironmentFailure: the machine is of another kind, or there is neither pip nor uv.
        RuntimeError: it cannot be fetched, or has another checksum; with the installer's message.
    """
    if (system().lower(), machine()) != ("linux", "x86_64"):
        raise EnvironmentFailure(f"{requirement.split()[0]}: its wheel is for Linux on x86_64 only")
    requirements = into / "requirements.txt"
    requirements.write_text(requirement + "\n")
    installer, is_pip = _wheel_installer()
    flags = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--python-version", python]
    flags += (
        ["--platform", f"{platform}_x86_64"]
        if is_pip
        else ["--python-platform", f"x86_64-{platform}"]
    )
    target = ("--target", into / "wheel")
    await said_by([*installer, *flags, *target, "-r", requirements], folder=into)


def _wheel_installer() -> tuple[list[str], bool]:
    """The start of a command that installs wheels, and whether it is pip and not uv.

    Raises:
        EnvironmentFailure: there is neither.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--quiet"], True
    # `uv run` sets this variable.
    if (uv := os.environ.get("UV") or shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--quiet"], False
    return [needed_program("pip3", "install pip or uv"), "install", "--quiet"], True
