"""Hatch's build hook: with AEROBEE_COMPILE=1 in the environment, the wheel has compiled modules.

Without it, it does nothing, so `pip install .` needs neither a compiler nor more packages.
AEROBEE_COMPILE=quick is for tests: sooner built, and slower.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def is_asked_for() -> bool:
    return os.environ.get("AEROBEE_COMPILE", "") not in ("", "0")


class CompiledModules(BuildHookInterface[Any]):
    def dependencies(self) -> list[str]:
        if not is_asked_for():
            return []
        project = tomllib.loads((Path(self.root) / "pyproject.toml").read_text("utf-8"))
        needed: list[str] = project["dependency-groups"]["compile"]
        return needed

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not is_asked_for():
            return
        self._made = tempfile.TemporaryDirectory()
        build = str(Path(self.root) / "deploy" / "compiled" / "build.py")
        options = ["--quick"] if os.environ["AEROBEE_COMPILE"] == "quick" else []
        subprocess.run([sys.executable, build, *options, "--into", self._made.name], check=True)
        folder = Path(self._made.name)
        for library in folder.rglob("*.so"):
            build_data["force_include"][str(library)] = str(library.relative_to(folder))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if not build_data["pure_python"]:
            self._made.cleanup()
