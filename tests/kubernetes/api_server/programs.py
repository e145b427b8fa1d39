"""Kubernetes' own programs, built once from its released modules into a cache folder.

Building takes about ten minutes on two cores and needs Go; what was built is used by every later
run. The folder names the version, so that a newer one is built beside an older one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.cache_folder import cache_folder

VERSION = "1.36.3"
MODULE = Path(__file__).resolve().parent.parent / "control_plane"
NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, slots=True)
class Programs:
    """The built programs."""

    folder: Path

    @property
    def api_server(self) -> Path:
        return self.folder / NAMES[0]

    @property
    def controller_manager(self) -> Path:
        return self.folder / NAMES[1]

    @property
    def scheduler(self) -> Path:
        return self.folder / NAMES[2]


def programs_folder() -> Path:
    return cache_folder() / "kubernetes" / VERSION


def built_programs() -> Programs | None:
    """What an earlier run built, or None."""
    folder = programs_folder()
    return Programs(folder) if all((folder / name).exists() for name in NAMES) else None


def why_not_buildable() -> str:
    """A sentence for people; empty when `build_programs` can be tried."""
    if shutil.which("go") is None:
        return (
            f"Kubernetes {VERSION} is not in {programs_folder()}, and there is no Go tool chain "
            "to build it: install Go 1.26 or newer"
        )
    return ""


def build_programs() -> Programs:
    """Build all three; the folder appears only when they are whole.

    Raises:
        subprocess.CalledProcessError: Go refused, and said why on standard error.
    """
    folder = programs_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as building:
        major, minor, _ = VERSION.split(".")
        stamp = "k8s.io/component-base/version"
        flags = (
            f"-s -w -X {stamp}.gitVersion=v{VERSION} "
            f"-X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
        )
        subprocess.run(
            [
                *("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags),
                *("-o", f"{building}/", *(f"./{name}" for name in NAMES)),
            ],
            cwd=MODULE,
            env={**os.environ, "CGO_ENABLED": "0"},
            check=True,
        )
        folder.mkdir(exist_ok=True)
        for name in NAMES:
            os.replace(Path(building) / name, folder / name)
    return Programs(folder)
