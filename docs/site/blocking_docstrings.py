"""Gives the methods of blocking clients the docstrings of their asynchronous twins.

An editor shows what is written at the method itself, so each twin says it in full, and a test
compares them: after a change of a docstring, run `python docs/site/blocking_docstrings.py`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

from aerobee.consumer_client import blocking as consuming
from aerobee.consumer_client.pull_consumer import PullConsumer
from aerobee.consumer_client.push_consumer import PushConsumer
from aerobee.producer_client import blocking as producing
from aerobee.producer_client.producer import Producer
from aerobee.producer_client.transactions import Transaction

TWINS: tuple[tuple[type, type], ...] = (
    (producing.BlockingProducer, Producer),
    (producing.BlockingTransaction, Transaction),
    (consuming.BlockingPullConsumer, PullConsumer),
    (consuming.BlockingPushConsumer, PushConsumer),
)
OF_THEIR_OWN = frozenset(
    {
        "BlockingTransaction.transaction_id",
        "BlockingPushConsumer.run",
        "BlockingPushConsumer.statistics",
        "BlockingPushConsumer.stop",
    }
)
"""Methods that do something else than their twin."""


def files() -> dict[Path, str]:
    """The files of blocking clients, and what they should say."""
    found: dict[Path, str] = {}
    for blocking, twin in TWINS:
        path = Path(inspect.getfile(blocking))
        text = found.get(path) or path.read_text("utf-8")
        found[path] = _with_docstrings(text, blocking.__name__, twin)
    return found


def _with_docstrings(text: str, name: str, twin: type) -> str:
    lines = text.splitlines(keepends=True)
    for method in reversed(list(_methods(text, name))):
        said = getattr(inspect.getattr_static(twin, method.name, None), "__doc__", None)
        if not said or f"{name}.{method.name}" in OF_THEIR_OWN:
            continue
        written = method.body[0]
        assert ast.get_docstring(method), f"{name}.{method.name} has no docstring to replace"
        body = textwrap.indent(inspect.cleandoc(said), " " * 8).lstrip()
        quoted = f'"""{body}\n        """' if "\n\n" in body else f'"""{body}"""'
        lines[written.lineno - 1 : written.end_lineno] = [f"{' ' * 8}{quoted}\n"]
    return "".join(lines)


def _methods(text: str, name: str) -> Iterator[ast.FunctionDef]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for each in node.body:
                if not isinstance(each, ast.FunctionDef) or each.name.startswith("_"):
                    continue
                if "overload" not in map(ast.unparse, each.decorator_list):
                    yield each


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, "utf-8")
