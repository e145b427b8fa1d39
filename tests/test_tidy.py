"""What a reviewer would say twice, said by a test: layers, import fences, file heads, lengths."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Which packages each package may import. Arrows never point back.
LAYERS: dict[str, frozenset[str]] = {
    "v1": frozenset(),
    "runtime": frozenset(),
    "store_format": frozenset(),
    "nameserver": frozenset({"cluster_view", "v1", "runtime"}),
    "broker": frozenset({"cluster_view", "v1", "runtime", "store_format"}),
    "store_repair": frozenset({"runtime", "store_format", "broker"}),
    "cluster_view": frozenset({"v1", "runtime"}),
    "client_core": frozenset({"cluster_view", "v1", "runtime", "store_format"}),
    "producer_client": frozenset({"client_core", "cluster_view", "v1", "runtime", "store_format"}),
    "consumer_client": frozenset({"client_core", "cluster_view", "v1", "runtime", "store_format"}),
    "offset_audit": frozenset({"client_core", "cluster_view", "v1", "runtime", "store_format"}),
    "cli": frozenset(
        {
            "offset_audit",
            "v1",
            "runtime",
            "store_format",
            "nameserver",
            "broker",
            "store_repair",
            "cluster_view",
            "client_core",
            "producer_client",
            "consumer_client",
            "bench",
        }
    ),
    "bench": frozenset(
        {
            "v1",
            "runtime",
            "store_format",
            "broker",
            "store_repair",
            "cluster_view",
            "client_core",
            "producer_client",
            "consumer_client",
            "offset_audit",
            "cli",
        }
    ),
}

# Third-party or standard modules that only the named places may import (prefixes of paths below a
# source root's `aerobee/` folder).
FENCES: dict[str, tuple[str, ...]] = {
    "grpc": (
        "runtime/rpc.py",
        "runtime/rpc_latency.py",
        "runtime/request_border.py",
        "runtime/method_wrapping.py",
        "runtime/health_check.py",
        "runtime/health_server.py",
        "cluster_view/",
        "producer_client/",
        "consumer_client/",
        "nameserver/etcd",
        "nameserver/service.py",
        "broker/edge/",
        "broker/cluster/",
        "cli/",
        "bench/",
    ),
    "etcd3": ("nameserver/etcd",),
    "numpy": ("store_format/", "broker/store/", "store_repair/", "offset_audit/", "bench/", "cli/"),
    "pyspark": ("offset_audit/", "bench/"),
    "pyarrow": ("offset_audit/", "bench/"),
    "click": ("cli/", "bench/"),
    "rich": ("cli/", "bench/"),
}

# No event loop and no threads where state must be decided by pure, synchronous code.
LOOP_FREE = ("store_format/", "broker/store/", "store_repair/", "consumer_client/rebalance/")

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 400


def sources() -> Iterator[tuple[str, Path]]:
    """Product files with their path below `aerobee/`."""
    for root in sorted(ROOT.iterdir()):
        package = root / "aerobee"
        if package.is_dir():
            for path in sorted(package.rglob("*.py")):
                if "_pb2" not in path.name:
                    yield path.relative_to(package).as_posix(), path


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "imports are absolute"
            if node.module == "aerobee":
                yield from (f"aerobee.{alias.name}" for alias in node.names)
            else:
                yield node.module


SOURCES = dict(sources())


@pytest.mark.parametrize("name", SOURCES)
def test_a_package_imports_only_the_layers_below_it(name: str) -> None:
    package = name.split("/")[0]
    allowed = LAYERS[package] | {package}
    for module in imported_modules(ast.parse(SOURCES[name].read_text())):
        parts = module.split(".")
        if parts[0] == "aerobee":
            assert parts[1] in allowed, f"{name} must not import {module}"


@pytest.mark.parametrize("name", SOURCES)
def test_special_modules_stay_behind_their_fences(name: str) -> None:
    for module in imported_modules(ast.parse(SOURCES[name].read_text())):
        fence = FENCES.get(module.split(".")[0])
        if fence is not None:
            assert name.startswith(fence), f"{name} must not import {module}"
        if module.split(".")[0] in {"asyncio", "threading"}:
            assert not name.startswith(LOOP_FREE), f"{name} must not import {module}"


@pytest.mark.parametrize("name", SOURCES)
def test_each_file_opens_with_what_it_is_for(name: str) -> None:
    text = SOURCES[name].read_text()
    assert ast.get_docstring(ast.parse(text)), f"{name} has no docstring at its head"
    assert text.count("\n") <= FILE_LINES_MAX, f"{name} is too long: is it one idea?"


@pytest.mark.parametrize("name", SOURCES)
def test_functions_fit_on_one_screen(name: str) -> None:
    for node in ast.walk(ast.parse(SOURCES[name].read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{name}: {node.name} has {lines} lines"


@pytest.mark.parametrize("name", SOURCES)
def test_no_state_lives_in_modules(name: str) -> None:
    """Module-level dicts, lists and sets are constants: no function changes them."""
    tree = ast.parse(SOURCES[name].read_text())
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Global), f"{name} uses `global`"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                assert "cache" not in ast.unparse(decorator).split(".")[-1], (
                    f"{name}: {node.name} keeps a cache in the module; let an owner hold it"
                )


def test_no_folder_makes_the_namespace_a_package() -> None:
    """Another distribution may add to `aerobee`; one __init__.py would hide it."""
    assert not [root for root in ROOT.iterdir() if (root / "aerobee" / "__init__.py").exists()]


def test_every_package_is_typed() -> None:
    for root in ROOT.iterdir():
        for package in root.glob("aerobee/*"):
            if package.is_dir() and package.name not in {"v1", "__pycache__"}:
                assert (package / "py.typed").exists(), package
