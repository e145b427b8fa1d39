"""An error in the product, as a change of its text, and the tests that stand against it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutant:
    """What a hurried edit could do to the core."""

    name: str
    breaks: str
    """The promise that is broken, as a user would meet it."""
    file: str
    """Below the root of the project."""
    old: str
    """Occurs exactly once in the file."""
    new: str
    tests: tuple[str, ...]
    """Those that promise it: `tests/…/test_x.py::test_y`. At least one of them fails."""

    def applied_to(self, text: str) -> str:
        """Raises ValueError unless `old` occurs exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"its old text occurs {count} times in {self.file}")
        return text.replace(self.old, self.new)


def what_is_stale(mutant: Mutant, root: Path) -> list[str]:
    """Why the entry does not speak of this tree any more; empty if it does."""
    stale = []
    file = root / mutant.file
    if not file.is_file():
        stale.append(f"{mutant.name}: there is no {mutant.file}")
    else:
        try:
            ast.parse(mutant.applied_to(file.read_text()))
        except (ValueError, SyntaxError) as error:
            stale.append(f"{mutant.name}: {error}")
    if not mutant.tests:
        stale.append(f"{mutant.name}: it names no test")
    for test in mutant.tests:
        path, _, name = test.partition("::")
        if not (root / path).is_file() or name.split("[")[0] not in _defined(root / path):
            stale.append(f"{mutant.name}: there is no test {test}")
    return stale


def _defined(path: Path) -> Sequence[str]:
    """Tests of a file: its functions, and state machines by the name that pytest finds them by."""
    names = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [name for name in names if name.lower().startswith("test")]
