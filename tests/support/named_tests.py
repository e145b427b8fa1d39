"""Tests that a page refers to as `tests/FILE.py::TEST`."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def named_in(text: str) -> list[tuple[str, str]]:
    """(file, function) of each test that the text names."""
    return _NAMED.findall(text)


@cache
def functions_of(path: str) -> dict[str, tuple[str, ...]]:
    """Each function of a test file -> its decorators, as written."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {
        node.name: tuple(ast.unparse(one) for one in node.decorator_list)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def assert_in_suite(path: str, function: str) -> None:
    """The test exists, and `make test` runs it."""
    found = functions_of(path)
    assert function in found, f"{path} has no {function}"
    assert "pytest.mark.long" not in found[function], f"{path}::{function} is only in make proof"
