"""docs/ARCHITECTURE.md: each file that it names for a change is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def named_files() -> list[Path]:
    """The files of each row, below the root before them; a bare name may be beside the last one."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    section = page.split("## Where a change goes\n")[1].split("\n## ")[0]
    found = []
    for row in re.findall(r"(?m)^\| .* \| (.*) \|$", section):
        base = folder = ROOT
        for name in re.findall(r"`([\w/.]+)`", row):
            if name.endswith("/"):
                root = name.rstrip("/")
                base = folder = ROOT / root if root == "protos" else ROOT / root / "aerobee" / root
            elif "." in name:
                file = base / name if "/" in name or (base / name).is_file() else folder / name
                folder = file.parent
                found.append(file)
    return found


def test_each_file_for_a_change_is_there() -> None:
    files = named_files()
    assert len(files) >= 15
    assert [str(file.relative_to(ROOT)) for file in files if not file.is_file()] == []
