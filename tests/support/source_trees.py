"""Python sources as trees: a million objects, among which the collector of garbage would look for
some again and again while they are made, most of the time of it.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path


def source_trees(paths: list[Path]) -> Iterator[tuple[Path, ast.Module]]:
    """Each file with its tree. The collector is at rest for as long as this is iterated."""
    was_at_work = gc.isenabled()
    gc.disable()
    try:
        for path in paths:
            yield path, ast.parse(path.read_text("utf-8"), str(path))
    finally:
        if was_at_work:
            gc.enable()
