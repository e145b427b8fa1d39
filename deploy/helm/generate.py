"""The templates of the chart, made of the manifests in deploy/k8s.

    python deploy/helm/generate.py            writes them
    python deploy/helm/generate.py --check    says which are not up to date, and exits with 1

Nobody writes an object twice: kustomize renders the overlay `ha` alone and with each component;
what differs gets the component's condition (`rendered.py`), and `fields.py` says which field comes
from which value. It needs kubectl or kustomize, or a command in the variable KUSTOMIZE.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from itertools import groupby
from pathlib import Path

from fields import apply_values, loops
from rendered import MANIFESTS, everything
from template_text import documents

CHART = Path(__file__).resolve().parent / "aerobee"
MONITORING = MANIFESTS.parent / "monitoring"
MADE = "# Made by deploy/helm/generate.py from deploy/k8s, which says why: change it there.\n"
SNAPSHOTS = MANIFESTS / "components" / "volume-snapshots" / "snapshots.py"
RULES = MANIFESTS / "components" / "prometheus-rules" / "rules.yaml"


def kustomize() -> list[str]:
    """The command that takes a folder and prints its objects."""
    if given := os.environ.get("KUSTOMIZE"):
        return given.split()
    if kubectl := shutil.which("kubectl"):
        return [kubectl, "kustomize"]
    if found := shutil.which("kustomize"):
        return [found, "build"]
    sys.exit("install kubectl or kustomize, or name its command in the variable KUSTOMIZE")


def files() -> dict[Path, str]:
    """All that is made, by its path in the chart."""
    found = {
        CHART / "templates" / "_config.tpl": _configurations(),
        CHART / "files" / "dashboard.json": (MONITORING / "dashboard.json").read_text("utf-8"),
        CHART / "files" / "snapshots.txt": SNAPSHOTS.read_text("utf-8"),
        CHART / "files" / "rules.yaml": RULES.read_text("utf-8").partition("\nspec:\n")[2],
    }
    entries = sorted(apply_values(everything(kustomize())), key=lambda one: one.file)
    for name, same_file in groupby(entries, lambda one: one.file):
        lines: list[str] = []
        for begins, same in groupby(same_file, lambda one: tuple(loops(one))):
            lines += [*begins, *documents(same), *["{{- end }}"] * len(begins)]
        text = MADE + "".join(f"{line}\n" for line in lines)
        found[CHART / "templates" / f"{name}.yaml"] = text
    return found


def _configurations() -> str:
    """What the files of base/ set, for `_helpers.tpl` to lay the user's values over."""
    text = "{{/* Made by deploy/helm/generate.py from deploy/k8s/base/*.toml. */}}\n"
    for service in ("broker", "nameserver"):
        settings = tomllib.loads((MANIFESTS / "base" / f"{service}.toml").read_text("utf-8"))
        text += f'{{{{- define "aerobee.{service}Base" -}}}}\n'
        text += json.dumps(settings, indent=2)
        text += "\n{{- end }}\n"
    return text


def main() -> int:
    made = files()
    old = [path for path in made if not path.exists() or path.read_text("utf-8") != made[path]]
    left = [
        path
        for path in (CHART / "templates").glob("*.yaml")
        if path not in made and path.read_text("utf-8").startswith(MADE)
    ]
    if "--check" in sys.argv:
        for path in (*old, *left):
            print(f"{path.relative_to(CHART.parent)} is not up to date: run {__file__}")
        return 1 if old or left else 0
    for path in left:
        path.unlink()
    for path in old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
