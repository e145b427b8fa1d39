"""Checks with pyright what programs of users see; mypy checks them with everything else.

pyright takes a package with an `__init__.py` for complete, and ours is one in several source roots:
so it is shown a folder in which links make one package of them, as the wheel is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = (
    "tests/typing",
    "examples/fastapi_orders.py",
    "examples/faststream_bills.py",
    "examples/order_saga.py",
    "examples/reminders.py",
    "examples/taskiq_mails.py",
    "examples/worker.py",
)
RULES = {"typeCheckingMode": "strict", "reportDeprecated": False, "reportMissingTypeStubs": False}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "aerobee"
        package.mkdir()
        for each in sorted(ROOT.glob("*/aerobee/*")):
            if each.name != "__pycache__":
                (package / each.name).symlink_to(each)
        (Path(folder) / "apache").symlink_to(ROOT / "protos" / "apache")
        settings = {
            **RULES,
            "include": [str(ROOT / name) for name in PROGRAMS],
            "extraPaths": [folder],
            "pythonVersion": "3.11",
        }
        config = Path(folder) / "pyrightconfig.json"
        config.write_text(json.dumps(settings), "utf-8")
        words = ("basedpyright", "--project", str(config), "--pythonpath", sys.executable)
        return subprocess.run((sys.executable, "-m", *words)).returncode


if __name__ == "__main__":
    sys.exit(main())
