"""`make k8s-test`: build Kubernetes' control plane if need be; run what needs it, or containers.

With `--api-server-if-built` nothing is built and no container is started: what is accepted is
judged if Kubernetes' programs are there, else one line says that they are not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kubernetes.api_server.programs import (
    VERSION,
    build_programs,
    built_programs,
    why_not_buildable,
)

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
    pytest = [sys.executable, "-m", "pytest", "-ra", "-m", "kubernetes", "--durations=10"]
    files = ("test_api_server.py", "test_page_commands.py") if is_quick else ("",)
    return subprocess.call([*pytest, *(str(FOLDER / file) for file in files)])


if __name__ == "__main__":
    sys.exit(main())
