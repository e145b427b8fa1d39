"""The chart as a user gets it: what Helm makes of it.

python -m tests.kubernetes.helm     build Helm with Go, where there is none
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.manifests import Manifests
from tests.support.cache_folder import cache_folder

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "deploy" / "helm" / "aerobee"
SINGLE = CHART / "values-single.yaml"

MODULE = "helm.sh/helm/v3/cmd/helm"
VERSION = "v3.22.0"
TIMEOUT_S = 60
# A Helm built without its makefile takes Kubernetes for a very old one.
KUBERNETES = ("--kube-version", "1.36.0")
MISSING = (
    "the chart cannot be rendered: install helm, or Go and run `python -m tests.kubernetes.helm`, "
    "which builds it into the cache folder"
)


class NoHelm(Exception):
    """There is no helm; says what to install."""


class Refused(Exception):
    """Helm does not take the values; says what it says."""


def built_helm() -> Path:
    return cache_folder() / "helm" / VERSION / "helm"


def helm() -> str:
    """The command.

    Raises:
        NoHelm: there is none.
    """
    found = shutil.which(built_helm()) or shutil.which("helm")
    if found is None:
        raise NoHelm(MISSING)
    return found


def run_helm(*arguments: str) -> str:
    """What it prints.

    Raises:
        NoHelm: there is none.
        Refused: it ends with an error.
    """
    done = subprocess.run(
        [helm(), *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise Refused(done.stdout + done.stderr)
    return done.stdout


def template(folder: Path, *files: Path, namespace: str = "aerobee", **values: Any) -> Manifests:
    """The objects of a release `aerobee` with these files of values, and then `values`.

    Raises:
        NoHelm: there is none.
        Refused: the values are wrong.
    """
    mine = folder / "values.yaml"
    mine.write_text(yaml.safe_dump(values), "utf-8")
    words = [word for file in (*files, mine) for word in ("--values", str(file))]
    text = run_helm("template", "aerobee", str(CHART), "-n", namespace, *KUBERNETES, *words)
    return Manifests(one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one)


def build_helm() -> None:
    """Build Helm from the Go module proxy into the cache folder: about five minutes."""
    folder = built_helm().parent
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(folder)}
    subprocess.run(["go", "install", f"{MODULE}@{VERSION}"], env=environment, check=True)


if __name__ == "__main__":
    if shutil.which("go") is None:
        sys.exit("install Go (Debian: golang-go) or helm")
    build_helm()
