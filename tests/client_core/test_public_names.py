"""`from aerobee import ...`: each name is there, has its exact type, and costs nothing before."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, assert_type

import pytest

import aerobee
import aerobee.client_core as client_core
from aerobee import BlockingProducer, Message, Producer, PullConsumer, PushConsumer, errors

ROOT = Path(__file__).resolve().parents[2] / "client_core"


@pytest.mark.parametrize("package", [aerobee, client_core], ids=["aerobee", "client_core"])
def test_what_type_checkers_see_is_what_programs_get(package: Any) -> None:
    tree = ast.parse((ROOT / package.__name__.replace(".", "/") / "__init__.py").read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen.pop("errors") in ("aerobee", "aerobee.runtime")
    assert set(package.__all__) == {*seen, "errors"}
    for name, module in seen.items():
        assert module is not None
        assert getattr(package, name) is getattr(import_module(module), name)
    for name in [*seen, "errors"]:
        assert getattr(package, name) is not None
        assert name in dir(package)


def test_names_keep_their_types() -> None:
    assert_type(Message("orders", b"{}"), Message)
    assert_type(Producer("127.0.0.1:1"), Producer)
    for kind in (BlockingProducer, PullConsumer, PushConsumer):
        assert isinstance(kind, type)


def output_of(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    program = (
        "import sys, aerobee\n"
        "print(*sorted(name for name in sys.modules if name.startswith('aerobee.')))\n"
        "print('asyncio' in sys.modules, len(dir(aerobee)) > 50, aerobee.__version__)\n"
    )
    assert output_of(program) == f"\nFalse True {version('aerobee')}\n"


def test_a_star_brings_every_public_name() -> None:
    program = (
        "import aerobee\n"
        "before = set(globals())\n"
        "from aerobee import *\n"
        "print(set(globals()) - before - {'before'} == set(dir(aerobee)) - {'__version__'})\n"
        "print(Producer.__name__, errors.__name__)\n"
    )
    assert output_of(program) == "True\nProducer aerobee.errors\n"


def test_a_producer_loads_no_administration_and_nothing_that_only_some_need() -> None:
    program = (
        "import sys\n"
        "from aerobee import Producer\n"
        "heavy = {'ctypes', 'difflib', 'grpc', 'hmac', 'lz4', 'numpy', 'rich', 'tomllib',\n"
        "    'uvloop', 'aerobee.client_core.admin_client', 'aerobee.consumer_client',\n"
        "    'aerobee.runtime.config_check'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    assert output_of(program) == "\n"


def test_a_name_that_is_not_there_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="module 'aerobee' has no attribute 'Kafka'"):
        _ = aerobee.Kafka  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="did you mean 'PushConsumer'"):
        _ = aerobee.PushConsumr  # type: ignore[attr-defined]


def test_a_client_refuses_what_is_no_config_of_its_kind() -> None:
    other: Any = aerobee.ConsumerConfig()
    for make in (aerobee.Producer, aerobee.BlockingProducer):
        with pytest.raises(errors.InvalidArgument, match="must be a ProducerConfig"):
            make(config=other)
    mapping: Any = {"await_topics": True}
    for join in (aerobee.PullConsumer, aerobee.BlockingPullConsumer):
        with pytest.raises(errors.InvalidArgument, match="a ConsumerConfig, not a dict"):
            join("g", config=mapping)
    for listen in (aerobee.PushConsumer, aerobee.BlockingPushConsumer):
        with pytest.raises(errors.InvalidArgument, match="a ConsumerConfig, not a dict"):
            listen("g", print, config=mapping)


def test_errors_are_those_that_python_programs_catch() -> None:
    assert issubclass(errors.DeadlineExceeded, TimeoutError)
    assert issubclass(errors.Unreachable, ConnectionError)
    for name in dir(errors):
        kind = getattr(errors, name)
        assert issubclass(kind, errors.AerobeeError), name
        assert kind.__module__ == "aerobee.errors", "tracebacks show where to import it from"


async def test_blocking_administration_has_all_parts_with_all_their_calls() -> None:
    def calls(client: object) -> dict[str, dict[str, str | None]]:
        return {
            name: {
                call: getattr(part, call).__doc__ for call in dir(part) if not call.startswith("_")
            }
            for name, part in vars(client).items()
            if not name.startswith("_")
        }

    asynchronous = calls(aerobee.AdminClient("127.0.0.1:1"))
    assert len(asynchronous) > 10
    assert calls(aerobee.BlockingAdminClient("127.0.0.1:1")) == asynchronous


def test_blocking_administration_says_how_else_something_is_asked() -> None:
    with pytest.raises(AttributeError, match=r"admin\.call\(lambda admin: admin\.connection"):
        _ = aerobee.BlockingAdminClient().connection  # type: ignore[attr-defined]
