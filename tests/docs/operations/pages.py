"""A page of docs/operations/ as a script: files to write, commands to type, on which machine.

A block whose first line is `# /path` is that file, on every machine, or on those that the line
names after `on`. In a console block `mq-1$ ` is typed on that machine, `mq-*$ ` on the first
three, and what follows is what it says; `...` there stands for anything. A comment
`<!-- mq-1: command -->` is run too: it brings about what a page is for, such as a dead disk.
Blocks with another prompt (`$ kubectl`) are not run here: tests/kubernetes/test_page_commands.py
runs those of three pages on a real API server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ALL = ("mq-1", "mq-2", "mq-3")
_LINES = re.compile(r"(?ms)^```(?P<language>\w*)\n(?P<text>.*?)^```$|<!-- (?P<hidden>mq-.*?) -->")


@dataclass(frozen=True)
class File:
    """A file as the page shows it."""

    line: int
    path: str
    machines: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Typed:
    """A command, on which machines, and what the page says that one sees."""

    line: int
    command: str
    machines: tuple[str, ...]
    shown: str


Step = File | Typed


def steps_of(page: Path) -> list[Step]:
    """Everything that a reader of the page writes and types, in order."""
    whole = page.read_text("utf-8")
    found: list[Step] = []
    for match in _LINES.finditer(whole):
        line = whole.count("\n", 0, match.start()) + 1
        hidden = match["hidden"]
        if hidden is not None:
            names, _, command = hidden.partition(": ")
            found.append(Typed(line, command.strip(), _machines(names), ""))
        elif match["language"] == "console":
            found += _typed(match["text"], line)
        elif (file := _file(match["text"], line)) is not None:
            found.append(file)
    return found


def _file(text: str, line: int) -> File | None:
    head, _, rest = text.partition("\n")
    named = re.fullmatch(r"# (/\S+)(?: on (mq-\S+))?", head)
    if named is None:
        return None
    return File(line, named[1], _machines(named[2] or "mq-*"), f"{head}\n{rest}".rstrip("\n"))


def _typed(text: str, line: int) -> list[Typed]:
    found = []
    for match in re.finditer(r"(?ms)^(mq-[\d*])\$ (.*?)(?=^mq-[\d*]\$ |\Z)", text):
        said = re.sub(r"\\\n", "", match[2])
        command, _, shown = said.partition("\n")
        place = line + 1 + text.count("\n", 0, match.start())
        command = command.partition("   # ")[0].strip()
        found.append(Typed(place, command, _machines(match[1]), shown.strip("\n")))
    return found


def _machines(names: str) -> tuple[str, ...]:
    return ALL if names == "mq-*" else tuple(names.split(","))
