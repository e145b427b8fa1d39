"""A shell in which commands of pages run against a real API server, word for word.

`kubectl` is the real one. There are no kubelets that could run anything in a pod: `kubectl exec`
asks the server whether the pod is there and ready, and notes the command.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.kubernetes.rendering import ROOT

READY_TIMEOUT = "60s"
_SHIM = """#!{python}
import json, os, subprocess, sys

kubectl = [{kubectl!r}, "--kubeconfig", {kubeconfig!r}]
words = sys.argv[1:]
if "exec" not in words:
    os.execv(kubectl[0], kubectl + words)
at = words.index("exec")
before, target, (dashes, *command) = words[:at], words[at + 1 :], words[words.index("--") :]
target = target[: target.index("--")]
if "-i" in target:
    target.remove("-i")
    sys.stdin.buffer.read()
(name,) = target
kind = "deployment" if name.startswith("deploy") else "pod"
name = kind + "/" + name.partition("/")[2] if "/" in name else kind + "/" + name
wanted = "Available" if kind == "deployment" else "Ready"
wait = ["wait", name, "--for", "condition=" + wanted, "--timeout", {timeout!r}]
found = subprocess.run(kubectl + before + wait, stdout=subprocess.DEVNULL).returncode
if found == 0:
    with open({noted!r}, "a") as noted:
        noted.write(json.dumps([name, command]) + chr(10))
sys.exit(found)
"""


class Failed(Exception):
    """A command of the shell."""


class Shell:
    """Its folder has the user's own `kustomization.yaml`, and `deploy` of the checkout."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.folder = folder
        self._noted = folder / "executed.jsonl"
        programs = folder / "bin"
        programs.mkdir(parents=True)
        (folder / "deploy").symlink_to(ROOT / "deploy")
        kubectl = shutil.which("kubectl")
        assert kubectl is not None
        shim = programs / "kubectl"
        shim.write_text(
            _SHIM.format(
                python=sys.executable,
                kubectl=kubectl,
                kubeconfig=str(kubeconfig),
                noted=str(self._noted),
                timeout=READY_TIMEOUT,
            )
        )
        shim.chmod(0o755)

    def run(self, commands: list[str], *, timeout_s: float = 200) -> str:
        """All of them in one shell, up to the first that fails; what they print.

        Raises:
            Failed: with everything up to there.
        """
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-x", "-c", "\n".join(commands)],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise Failed(done.stdout[-4_000:])
        return done.stdout

    def executed(self) -> list[tuple[str, list[str]]]:
        """The pod, and the command, of each `kubectl exec` so far."""
        if not self._noted.exists():
            return []
        return [tuple(json.loads(line)) for line in self._noted.read_text().splitlines()]
