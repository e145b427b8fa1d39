"""The manifests as a user gets them: what kustomize makes of an overlay.

python -m tests.kubernetes.rendering     build kustomize with Go, where there is no kubectl
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
MANIFESTS = ROOT / "deploy" / "k8s"
OVERLAYS = ("single", "ha", "audit", "audit-spark")
"""All folders of deploy/k8s/overlays."""
NAMESPACE = "namespace"
"""Applied before an overlay, and deleted with none: deploy/k8s/namespace."""

KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5@v5.8.1"
RENDER_TIMEOUT_S = 60
MISSING = (
    "manifests cannot be rendered: install kubectl, or Go and run "
    "`python -m tests.kubernetes.rendering`, which builds kustomize into the cache folder"
)


class CannotRender(Exception):
    """There is neither kubectl nor kustomize; says what to install."""


def renderer() -> list[str]:
    """The command that takes a folder and prints its objects.

    Raises:
        CannotRender: there is none.
    """
    if kubectl := shutil.which("kubectl"):
        return [kubectl, "kustomize"]
    built = cache_folder() / "kustomize" / "kustomize"
    if kustomize := shutil.which("kustomize") or shutil.which(str(built)):
        return [kustomize, "build"]
    raise CannotRender(MISSING)


def render(folder: Path) -> Manifests:
    """All objects that applying `folder` would send.

    Raises:
        CannotRender: there is no kustomize.
        AssertionError: kustomize refuses the folder.
    """
    done = subprocess.run(
        [*renderer(), str(folder)],
        capture_output=True,
        text=True,
        timeout=RENDER_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Deprecated fields are only warned of.
    assert not done.stderr, done.stderr
    return Manifests(yaml.safe_load_all(done.stdout))


def render_overlay(name: str) -> Manifests:
    """One of OVERLAYS."""
    return render(MANIFESTS / "overlays" / name)


def render_with(folder: Path, **kustomization: Any) -> Manifests:
    """A user's own kustomization in the empty `folder`; paths in `resources` and `components` are
    below deploy/k8s."""
    for key in ("resources", "components"):
        paths = [os.path.relpath(MANIFESTS / one, folder) for one in kustomization.get(key, ())]
        if paths:
            kustomization[key] = paths
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return render(folder)


def build_kustomize() -> None:
    """Build kustomize from the Go module proxy into the cache folder."""
    folder = cache_folder() / "kustomize"
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(folder)}
    subprocess.run(["go", "install", KUSTOMIZE], env=environment, check=True)


if __name__ == "__main__":
    if shutil.which("go") is None:
        sys.exit("install Go (Debian: golang-go) or kubectl")
    build_kustomize()
