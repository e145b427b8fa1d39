"""Commands of the pages, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"(?ms)^```console\n(.*?)^```$")


def commands_of(text: str) -> list[str]:
    """What stands after `$ ` in console blocks."""
    blocks = _BLOCK.findall(text)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def sections(page: Path) -> dict[str, list[str]]:
    """The commands below each heading of any depth, up to the next one; without those that have
    none."""
    parts = re.split(r"(?m)^#+ (.+)$", page.read_text("utf-8"))
    named = zip(parts[1::2], parts[2::2], strict=True)
    return {title: found for title, text in named if (found := commands_of(text))}
