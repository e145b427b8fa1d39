"""What a compiled module may contain: mypyc accepts more than it runs as Python does.

docs/decisions/0048-compiled-from-the-same-source.md has the cause of each rule. `make
compiled-test` compiles the modules; these tests see most of what would fail there in a second.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from deploy.compiled.build import listed_modules
from tests.support.source_trees import source_trees

ROOT = Path(__file__).resolve().parents[2]
SUSPENDS = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield, ast.YieldFrom)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """These nodes and all below them, without inner functions."""
    for node in nodes:
        yield node
        if not isinstance(node, FUNCTIONS):
            yield from own(ast.iter_child_nodes(node))


def rule_breaks(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            handling = [*node.finalbody]
            for handler in node.handlers:
                handling += handler.body
            if any(isinstance(inner, SUSPENDS) for inner in own(handling)):
                yield node.lineno, "suspends while it handles an exception"
        elif isinstance(node, ast.AsyncWith):
            managers = [ast.unparse(item.context_expr) for item in node.items]
            if not all(manager.startswith("asyncio.timeout(") for manager in managers):
                yield node.lineno, "may suspend at the end of `async with` because of an exception"
        elif isinstance(node, ast.TryStar):
            yield node.lineno, "has `except*`"
        elif isinstance(node, ast.AsyncFunctionDef) and any(
            isinstance(inner, ast.Yield) for inner in own(node.body)
        ):
            yield node.lineno, "is an async generator"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from reused_names(node)
            yield from lost_causes(node.body)
        if isinstance(node, ast.Module):
            yield from fields_of_later_classes(node)


def reused_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    types: dict[str, str] = {}
    for node in own(function.body):
        if isinstance(node, ast.ExceptHandler) and node.name and node.type:
            caught = ast.unparse(node.type)
            if types.setdefault(node.name, caught) != caught:
                yield node.lineno, f"catches two types as {node.name!r}"


def lost_causes(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Compiled, `raise ... from error` does not set the cause. Within the handler of that error its
    context is the same."""
    for node in nodes:
        if isinstance(node, (*FUNCTIONS, ast.ExceptHandler)):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.cause, ast.Name):
            yield node.lineno, "raises `from` an error that is not being handled"
        yield from lost_causes(ast.iter_child_nodes(node))


def fields_of_later_classes(module: ast.Module) -> Iterator[tuple[int, str]]:
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    later = {each.name for each in classes}
    for each in classes:
        fields = [node.annotation for node in each.body if isinstance(node, ast.AnnAssign)]
        named = {node.id for node in own(fields) if isinstance(node, ast.Name)}
        if each.bases and named & later:
            yield each.lineno, f"has a field of {min(named & later)}, which comes later"
        later.discard(each.name)


def test_compiled_modules_contain_only_what_runs_as_python_does() -> None:
    sources = [ROOT / path for path in listed_modules(ROOT)]
    assert len(sources) > 30
    found = [
        f"{path.relative_to(ROOT)}:{line} {what}"
        for path, tree in source_trees(sources)
        for line, what in rule_breaks(tree)
    ]
    assert found == [], "mend them, or keep the module Python by a line with ! in modules.txt"


def test_a_field_of_a_later_class_is_seen() -> None:
    """The import of such a module, compiled, ends the process."""
    early, late = "class Write(NamedTuple):\n queue: Queue | None\n", "class Queue:\n pass\n"
    assert [what for _, what in rule_breaks(ast.parse(early + late))] == [
        "has a field of Queue, which comes later"
    ]
    assert list(rule_breaks(ast.parse(late + early))) == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("try:\n  pass\n finally:\n  await x", "suspends while"),
        ("try:\n  pass\n except E:\n  await x", "suspends while"),
        ("async with lock:\n  pass", "may suspend"),
        ("yield 1", "async generator"),
        ("try:\n  pass\n except* E:\n  pass", "except*"),
        ("try:\n  x()\n except A as e:\n  y\n except B as e:\n  z", "catches two types as 'e'"),
        ("raise A from b", "raises `from`"),
        ("try:\n  x()\n except A as e:\n  raise B from e", ""),
        ("async with asyncio.timeout(1):\n  await x", ""),
        ("try:\n  await x\n except A as e:\n  y\n except B as f:\n  z\n finally:\n  w()", ""),
    ],
)
def test_each_rule_is_seen(body: str, told: str) -> None:
    broken = [what for _, what in rule_breaks(ast.parse(f"async def f():\n {body}"))]
    assert len(broken) == (1 if told else 0)
    assert told in "".join(broken)
