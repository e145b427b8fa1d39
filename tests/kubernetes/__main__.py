"""`make k8s-test`: build Kubernetes' control plane if need be; run what needs it, or containers.

With `--only-if-built` nothing is built: what cannot run is skipped, and says why.
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
    if built_programs() is None and "--only-if-built" not in sys.argv:
        reason = why_not_buildable()
        if reason:
            print(f"{reason}; the schema checks run without it", file=sys.stderr, flush=True)
        else:
            print(f"building Kubernetes {VERSION}: about ten minutes, once", flush=True)
            build_programs()
    pytest = [sys.executable, "-m", "pytest", "-ra", "-m", "kubernetes", "--durations=10"]
    return subprocess.call([*pytest, str(FOLDER)])


if __name__ == "__main__":
    sys.exit(main())
