"""Python sources as trees: a million objects, which the garbage collector would scan again and
again while they are made, taking most of the time.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path


def source_trees(paths: list[Path]) -> Iterator[tuple[Path, ast.Module]]:
    """Each file with its tree. The garbage collector is off during the iteration."""
    was_at_work = gc.isenabled()
    gc.disable()
    try:
        for path in paths:
            yield path, ast.parse(path.read_text("utf-8"), str(path))
    finally:
        if was_at_work:
            gc.enable()
