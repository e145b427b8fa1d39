"""The product's files as the tests of its layout see them: each is parsed once in a process."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.private_reaches import privates_of
from tests.support.source_trees import source_trees

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Source:
    """One file; `name` is its path below `aerobee/`."""

    name: str
    lines: int
    docstring: str | None
    imports: tuple[str, ...]
    """Modules, also those that only type checkers import."""
    imports_at_run_time: tuple[str, ...]
    """Modules, or what is imported from them."""
    functions: tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]
    uses_global: bool
    privates: frozenset[str]
    """The private names that it gives to something."""


@cache
def product_sources() -> tuple[Source, ...]:
    """Every file but the generated ones. Takes seconds."""
    names = {path: name for name, path in product_paths()}
    return tuple(
        _source(names[path], path.read_text(), tree) for path, tree in source_trees([*names])
    )


def product_paths() -> Iterator[tuple[str, Path]]:
    """Each file's path below `aerobee/`, and the file."""
    for root in sorted(ROOT.iterdir()):
        package = root / "aerobee"
        if package.is_dir():
            for path in sorted(package.rglob("*.py")):
                if "_pb2" not in path.name:
                    yield path.relative_to(package).as_posix(), path


def _source(name: str, text: str, tree: ast.Module) -> Source:
    nodes = list(ast.walk(tree))
    return Source(
        name=name,
        lines=text.count("\n"),
        docstring=ast.get_docstring(tree),
        imports=tuple(_imported_modules(nodes)),
        imports_at_run_time=tuple(_imports_at_run_time(tree)),
        functions=tuple(
            node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        uses_global=any(isinstance(node, ast.Global) for node in nodes),
        privates=frozenset(privates_of(nodes)),
    )


def _imported_modules(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "imports are absolute"
            if node.module == "aerobee":
                # A public name counts as an import of the module that has it.
                for alias in node.names:
                    yield _public_names().get(alias.name, f"aerobee.{alias.name}")
            else:
                yield node.module


def _imports_at_run_time(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module is not None:
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from _imports_at_run_time(child)


@cache
def _public_names() -> dict[str, str]:
    """The module of each name that `aerobee` itself offers, as type checkers see it."""
    (checked,) = [
        node
        for node in ast.parse((ROOT / "client_core/aerobee/__init__.py").read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "aerobee"
        for alias in node.names
    }
