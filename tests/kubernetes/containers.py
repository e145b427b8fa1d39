"""Containers for tests, run by podman as this machine can run them.

Two things differ from podman's own defaults: the limits, which a container may not raise above
this process's where the machine does not let root do so, and the runtime, since crun does not start
where both versions of cgroups are mounted. A file of the user's, named by CONTAINERS_CONF, goes
first.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RUN_TIMEOUT_S = 300.0
NOFILE_MAX = 20_000
NPROC_MAX = 4_096


class NoContainers(Exception):
    """Containers or the image are not to be had here; the text says what would help."""


@dataclass(frozen=True, slots=True)
class Podman:
    """The command, with the configuration that works here."""

    conf: Path

    def run(self, *words: str, text_in: str | None = None) -> subprocess.CompletedProcess[str]:
        """`podman WORDS`; what it exits with is for the caller to judge."""
        return subprocess.run(
            ["podman", *words],
            input=text_in,
            capture_output=True,
            text=True,
            env={**os.environ, "CONTAINERS_CONF": str(self.conf)},
            timeout=RUN_TIMEOUT_S,
        )

    def output(self, *words: str, text_in: str | None = None) -> str:
        """What `podman WORDS` prints; it must exit with 0."""
        done = self.run(*words, text_in=text_in)
        assert done.returncode == 0, f"podman {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def inspect_image(self, image: str) -> dict[str, Any]:
        (found,) = json.loads(self.output("image", "inspect", image))
        assert isinstance(found, dict)
        return found

    @contextmanager
    def running(self, name: str, *words: str) -> Iterator[None]:
        """A container in the background, removed in the end; its log goes to standard output."""
        try:
            # One that cannot be started is there all the same, and keeps others from being removed.
            self.output("run", "--detach", "--name", name, *words)
            yield
        finally:
            logs = self.run("logs", name)
            print(f"--- {name}", logs.stdout, logs.stderr, sep="\n")
            self.run("rm", "--force", "--volumes", "--time", "5", name)


def find_podman(folder: Path) -> Podman:
    """Podman, with its configuration written to `folder` unless the user names one.

    Raises:
        NoContainers: there is none.
    """
    if shutil.which("podman") is None:
        raise NoContainers("there is no podman here (Debian: apt-get install podman runc)")
    given = os.environ.get("CONTAINERS_CONF")
    if given:
        return Podman(Path(given))
    conf = folder / "containers.conf"
    limits = ", ".join(
        f'"{name}={limit}:{limit}"'
        for name, limit in (
            ("nofile", _limit(resource.RLIMIT_NOFILE, NOFILE_MAX)),
            ("nproc", _limit(resource.RLIMIT_NPROC, NPROC_MAX)),
        )
    )
    engine = '[engine]\nruntime = "runc"\n' if shutil.which("runc") else ""
    conf.write_text(f"[containers]\ndefault_ulimits = [{limits}]\n{engine}", "utf-8")
    return Podman(conf)


def _limit(which: int, at_most: int) -> int:
    _, hard = resource.getrlimit(which)
    return at_most if hard == resource.RLIM_INFINITY else min(hard, at_most)


def image_name(name: str = "aerobee", tag: str | None = None) -> str:
    """What deploy/image/build.sh calls an image."""
    if tag is None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        tag = project["version"]
    return f"localhost/{name}:{tag}"


def require_image(podman: Podman, image: str) -> None:
    """
    Raises:
        NoContainers: it is not built.
    """
    if podman.run("image", "exists", image).returncode != 0:
        raise NoContainers(f"{image} is not built: make image")
