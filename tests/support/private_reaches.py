"""Where a test reaches into what a class of the product keeps to itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

_OF_NAMED_TUPLES = frozenset({"_replace", "_asdict", "_fields", "_make"})
_PERHAPS = re.compile(
    r"(?<!\bself)(?<!\bcls)\._[a-zA-Z]|[\"']_[a-zA-Z]|import .*\b_[a-zA-Z]|^ +_\w+,$", re.MULTILINE
)
"""In the text of each file that reaches, and of a few others."""


def may_reach(text: str) -> bool:
    """Whether the file is worth a parse: most are not."""
    return _PERHAPS.search(text) is not None


def privates_of(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The private names that a product file gives to something."""
    for node in nodes:
        name = ""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                name = node.name
            case ast.Name(ctx=ast.Store()):
                name = node.id
            case ast.Attribute(ctx=ast.Store()):
                name = node.attr
        if _is_private(name) and name not in _OF_NAMED_TUPLES:
            yield name


def reaches_in(tree: ast.Module, privates: Collection[str]) -> Iterator[str]:
    """Each use of one of the names on something else than `self`: in code, as a text for `setattr`
    or in an import. What the file's own classes have does not count, nor what modules of others
    have, such as `os._exit`."""
    nodes = list(ast.walk(tree))
    own = set(_own_names(nodes))
    modules = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if not alias.name.startswith("aerobee")
    }
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(value=ast.Name(id=name)) if name in modules:
                pass
            case ast.Attribute(attr=name) if name in privates and name not in own:
                yield name
            case ast.Call(
                func=ast.Attribute(attr="setattr") | ast.Name(id="setattr" | "getattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ) if name in privates:
                yield name
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("aerobee"):
                yield from (alias.name for alias in names if _is_private(alias.name))


def _own_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
