"""`make k8s-test`: build Kubernetes' control plane and Helm if need be; run what needs them.

With `--api-server-if-built` nothing is built and no container is started: what is accepted is
judged if Kubernetes' programs are there, else one line says that they are not.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.kubernetes.api_server.programs import (
    VERSION,
    build_programs,
    built_programs,
    why_not_buildable,
)
from tests.kubernetes.helm import build_helm, built_helm

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    is_quick = "--api-server-if-built" in sys.argv
    if built_programs() is None:
        if is_quick:
            print(f"Kubernetes {VERSION} is not built (`make k8s-test` builds it): left out")
            return 0
        reason = why_not_buildable()
        if reason:
            print(f"{reason}; the schema checks run without it", file=sys.stderr, flush=True)
        else:
            print(f"building Kubernetes {VERSION}: about ten minutes, once", flush=True)
            build_programs()
    if not is_quick and not shutil.which("helm") and not built_helm().exists():
        if shutil.which("go"):
            print("building Helm: about five minutes, once", flush=True)
            build_helm()
        else:
            print("no Helm and no Go to build it: tests of the chart are left out", file=sys.stderr)
    pytest = [sys.executable, "-m", "pytest", "-ra", "-m", "kubernetes", "--durations=10"]
    files = ("test_api_server.py", "test_page_commands.py") if is_quick else ("",)
    return subprocess.call([*pytest, *(str(FOLDER / file) for file in files)])


if __name__ == "__main__":
    sys.exit(main())
