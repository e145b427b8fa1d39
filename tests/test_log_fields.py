"""What log lines may hold: fixed phrases and fields, never what a message or a credential holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_trees import source_trees

ROOT = Path(__file__).resolve().parent.parent

# Words of names that hold what users send, or what lets somebody in.
PRIVATE = frozenset(
    {
        "authorization",
        "bodies",
        "body",
        "buffer",
        "credential",
        "credentials",
        "data",
        "frame",
        "passphrase",
        "password",
        "payload",
        "properties",
        "secret",
        "token",
    }
)
# They log what their callers give them; those calls are looked at.
PASSING_ON = ("runtime/aerobee/runtime/log.py", "runtime/aerobee/runtime/worker.py")
LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})


def calls() -> Iterator[tuple[str, ast.Call]]:
    """(place, call) of all that logs."""
    for path, tree in source_trees(sorted(ROOT.glob("*/aerobee/**/*.py"))):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _is_logging(node.func):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def _is_logging(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in {"log_event", "warns"}
    return (
        isinstance(function, ast.Attribute)
        and function.attr in LEVELS
        and isinstance(function.value, ast.Name)
        and function.value.id in {"log", "logger"}
    )


@pytest.fixture(scope="module")
def logged() -> list[tuple[str, ast.Call]]:
    return [(place, call) for place, call in calls() if not place.startswith(PASSING_ON)]


def test_the_search_finds_what_logs(logged: list[tuple[str, ast.Call]]) -> None:
    assert len(logged) > 90


def test_no_field_holds_what_users_send(logged: list[tuple[str, ast.Call]]) -> None:
    """Fields are written out, so that they can be judged."""
    wrong = []
    for place, call in logged:
        names = [keyword.arg for keyword in call.keywords]
        for part in (*call.args[1:], *(keyword.value for keyword in call.keywords)):
            for node in ast.walk(part):
                if isinstance(node, ast.Name):
                    names.append(node.id)
                elif isinstance(node, ast.Attribute):
                    names.append(node.attr)
        private = {name for name in names if name and PRIVATE & set(name.lower().split("_"))}
        if private or None in names:
            wrong.append(f"{place} logs {private or 'fields that are not written out'}")
    assert wrong == []


def test_an_event_is_a_fixed_phrase(logged: list[tuple[str, ast.Call]]) -> None:
    """What varies is a field, so that an event can be searched for and counted."""
    wrong = []
    for place, call in logged:
        event = call.args[1] if isinstance(call.func, ast.Name) else call.args[0]
        if any(isinstance(node, ast.JoinedStr | ast.BinOp) for node in ast.walk(event)):
            wrong.append(f"{place}: {ast.unparse(event)}")
    assert wrong == []
