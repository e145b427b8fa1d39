"""docs/troubleshooting.md has an entry for every error class, and shows messages that there are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_trees import source_trees

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
BASES = frozenset({"AerobeeError"})
STORE_ERROR = "StoreUnusable"
VARIES = "\0"


@cache
def product() -> tuple[ast.Module, ...]:
    """Every module of the product, benchmarks left out."""
    files = [
        file
        for file in ROOT.glob("*/aerobee/**/*.py")
        if file.relative_to(ROOT).parts[0] not in ("bench", "tests", "protos")
    ]
    return tuple(tree for _, tree in source_trees(files))


@cache
def error_classes() -> dict[str, bool]:
    """Each public error class -> whether it is retryable, itself or by a base."""
    found: dict[str, bool] = dict.fromkeys((*BASES, "Exception"), False)
    classes = [
        node for module in product() for node in ast.walk(module) if isinstance(node, ast.ClassDef)
    ]
    while True:
        before = len(found)
        for node in classes:
            if node.name not in found:
                bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
                known = [base for base in bases if base in found and base != "Exception"]
                if known or node.name == STORE_ERROR:
                    found[node.name] = _retryable(node, any(found[base] for base in known))
        if len(found) == before:
            break
    return {
        name: retryable
        for name, retryable in found.items()
        if name not in (*BASES, "Exception") and not name.startswith("_")
    }


def _retryable(node: ast.ClassDef, inherited: bool) -> bool:
    for line in node.body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "retryable":
            return ast.unparse(line.value) == "True"
    return inherited


@cache
def texts() -> tuple[str, ...]:
    """All texts of the product, with a mark for what is put into them."""
    found = []
    for module in product():
        for node in ast.walk(module):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(_piece(part) for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return tuple(found)


def _piece(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else VARIES


def entries() -> dict[str, str]:
    """Heading -> text below it."""
    parts = re.split(r"(?m)^### (.+)$", PAGE.read_text("utf-8"))
    return dict(
        zip(parts[1::2], (re.split(r"(?m)^## ", each)[0] for each in parts[2::2]), strict=True)
    )


def test_every_error_has_an_entry_and_every_entry_is_an_error() -> None:
    assert set(entries()) == set(error_classes())


@pytest.mark.parametrize("name", sorted(entries()))
def test_an_entry_shows_messages_of_the_product_and_says_what_to_do(name: str) -> None:
    text = entries()[name]
    shown = re.findall(r"(?m)^> (.+)$", text)
    assert shown, "a message as it is seen"
    for message in shown:
        pieces = [re.escape(piece.strip()) for piece in message.split("...") if piece.strip(" .'")]
        pattern = re.compile(".*".join(pieces), re.DOTALL)
        assert any(pattern.search(each) for each in texts()), f"nothing says {message!r}"
    assert "**Meaning.**" in text
    assert "**What to do.**" in text
    assert ("*Retryable.*" in text) is error_classes()[name], "what the class says of retries"
