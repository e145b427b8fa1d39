"""`from aerobee import ...`: each name is there, has its exact type, and costs nothing before."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import assert_type

import pytest

import aerobee
from aerobee import BlockingProducer, Message, Producer, PullConsumer, PushConsumer, errors

FRONT = Path(__file__).resolve().parents[2] / "client_core" / "aerobee" / "__init__.py"


def test_what_type_checkers_see_is_what_programs_get() -> None:
    tree = ast.parse(FRONT.read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen.pop("errors") == "aerobee"
    assert seen == aerobee._MODULE_OF
    for name in [*seen, "errors", "__version__"]:
        assert getattr(aerobee, name) is not None
        assert name in dir(aerobee)


def test_names_keep_their_types() -> None:
    assert_type(Message("orders", b"{}"), Message)
    assert_type(Producer("127.0.0.1:1"), Producer)
    for kind in (BlockingProducer, PullConsumer, PushConsumer):
        assert isinstance(kind, type)


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    program = (
        "import sys, aerobee\n"
        "print(*sorted(name for name in sys.modules if name.startswith('aerobee.')))\n"
        "print('asyncio' in sys.modules, len(dir(aerobee)) > 50, aerobee.__version__)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert said == f"\nFalse True {version('aerobee')}\n"


def test_a_name_that_is_not_there_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="module 'aerobee' has no attribute 'Kafka'"):
        _ = aerobee.Kafka  # type: ignore[attr-defined]


def test_errors_are_those_that_python_programs_catch() -> None:
    assert issubclass(errors.DeadlineExceeded, TimeoutError)
    assert issubclass(errors.Unreachable, ConnectionError)
    for name in dir(errors):
        kind = getattr(errors, name)
        assert issubclass(kind, errors.AerobeeError), name
        assert kind.__module__ == "aerobee.errors", "tracebacks show where to import it from"
