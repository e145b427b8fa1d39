"""The plan inside each source root: what stands on what, and that no arrow points back up."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.source_trees import source_trees

ROOT = Path(__file__).resolve().parent.parent

# From the lowest to the highest level of a root: a room, i.e. a folder or a file beside the
# folders, imports rooms of lower levels only. Rooms of one level know nothing of each other.
PLANS: dict[str, tuple[tuple[str, ...], ...]] = {
    "broker": (
        ("counters.py",),
        ("cold_reads",),
        ("replication",),
        ("config_risks.py", "groups", "sending"),
        ("config.py", "opened.py", "reading"),
        ("journal",),
        ("pop", "retention", "timers"),
        ("features.py",),
        ("offsets",),
        ("cluster", "opening.py", "retries", "transactions"),
        ("delayed", "popping"),
        ("observe",),
        ("edge", "run.py"),
        ("wiring.py",),
        ("app.py",),
    ),
    "store": (("format",), ("engine",), ("flush", "repair")),
    "rpc": (
        ("core", "grpc_config.py", "outside.py", "request_limits.py"),
        (
            "call_guard.py",
            "metrics_endpoint.py",
            "own_protocol.py",
            "peer_limits.py",
            "reflection.py",
            "served_method.py",
            "standard_limits.py",
            "tls_config.py",
        ),
        (
            "call_border.py",
            "config_risks.py",
            "outside_config.py",
            "server_engine.py",
            "serving_health.py",
        ),
        ("client_channel.py", "grpcio_engine.py", "memory_budget.py", "own_engine.py", "tls.py"),
        ("serving.py",),
        ("health_check.py", "health_server.py"),
        ("node_ports.py",),
    ),
    "offset_audit": (
        ("rules", "tables.py"),
        ("checks", "doctor", "sources"),
        ("outputs",),
        ("run",),
    ),
    "rocketmq_api": (
        ("rules",),
        ("codes.py", "ports.py", "request_limits.py", "times.py"),
        ("resources.py", "sending"),
        ("config.py", "needs.py", "receiving", "routes"),
        ("clients",),
        ("services",),
    ),
    "cli": (
        (
            "audit_display.py",
            "etcd_backup.py",
            "etcd_members.py",
            "failures.py",
            "field_texts.py",
            "moments.py",
            "retry_words.py",
            "tls_options.py",
        ),
        (
            "config_command.py",
            "config_reference.py",
            "declared",
            "drain.py",
            "message_lines.py",
            "output.py",
            "queue_places.py",
        ),
        ("cluster_picture.py", "meter.py", "notices.py", "options.py", "peeking.py"),
        ("event_loop.py", "lazy_group.py", "store"),
        ("__main__.py", "local_cluster"),
        ("demo", "target.py"),
        ("cli_reference.py", "completion.py", "group_lag.py", "one_by_one.py"),
        ("commands",),
    ),
    "bench": (
        ("grpcio_client.py", "imports.py", "measure.py", "peer_names.py"),
        (
            "bare_stream.py",
            "catch_up_reader.py",
            "cluster.py",
            "dispatch_lag.py",
            "end_to_end.py",
            "many_queues.py",
            "report.py",
            "stores.py",
        ),
        ("consume.py", "produce.py", "replica_master.py"),
        ("client_loops.py", "suite.py"),
        (
            "audit",
            "cold_read.py",
            "commits.py",
            "delay.py",
            "filters.py",
            "idle_polls.py",
            "index.py",
            "replication.py",
        ),
        ("replication_cluster.py",),
        ("failover.py",),
        ("command.py",),
    ),
}
LARGE_LINES = 5_000
"""A root with more lines and folders has a plan."""

Arrows = dict[tuple[str, str], list[str]]


def imports_at_run_time(node: ast.AST) -> Iterator[str]:
    """Names of modules, or of what is imported from them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module is not None:
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imports_at_run_time(child)


class Root:
    """One source root: its rooms, and the arrows between them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.package = ROOT / name / "aerobee" / name
        paths = [path for path in sorted(self.package.rglob("*.py")) if "_pb2" not in path.name]
        self._paths = [path for path in paths if path != self.package / "__init__.py"]
        self.rooms = {self._room(path) for path in self._paths}
        self.lines = 0
        self.arrows: Arrows = defaultdict(list)
        for path, tree in source_trees(self._paths):
            self.lines += path.read_text().count("\n")
            self._follow(path, tree)

    @property
    def has_folders(self) -> bool:
        return any(not room.endswith(".py") for room in self.rooms)

    def _room(self, path: Path) -> str:
        return path.relative_to(self.package).parts[0]

    def _follow(self, path: Path, tree: ast.Module) -> None:
        here, prefix = self._room(path), f"aerobee.{self.name}."
        for module in imports_at_run_time(tree):
            if module.startswith(prefix):
                first = module.removeprefix(prefix).split(".")[0]
                there = first if first in self.rooms else f"{first}.py"
                if there in self.rooms and there != here:
                    name = path.relative_to(self.package).as_posix()
                    self.arrows[here, there].append(f"{name} imports {module}")


@pytest.fixture(scope="module")
def roots() -> Mapping[str, Root]:
    names = sorted(path.name for path in ROOT.iterdir() if (path / "aerobee" / path.name).is_dir())
    return {name: Root(name) for name in names}


def test_no_root_has_a_circle_of_folders(roots: Mapping[str, Root]) -> None:
    wrong = []
    for root in roots.values():
        graph: dict[str, set[str]] = {room: set() for room in root.rooms}
        for here, there in root.arrows:
            graph[here].add(there)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            wrong.append(f"{root.name}: {' -> '.join(error.args[1])}")
    assert wrong == []


@pytest.mark.parametrize("name", PLANS)
def test_a_room_imports_only_the_levels_below_it(name: str, roots: Mapping[str, Root]) -> None:
    level_of = {room: level for level, rooms in enumerate(PLANS[name]) for room in rooms}
    root = roots[name]
    assert root.rooms == set(level_of), "each room has its place in the plan"
    wrong = [
        why
        for (here, there), whys in root.arrows.items()
        if level_of[there] >= level_of[here]
        for why in whys
    ]
    assert wrong == []


def test_each_large_root_with_folders_has_a_plan(roots: Mapping[str, Root]) -> None:
    large = {name for name, root in roots.items() if root.lines > LARGE_LINES and root.has_folders}
    assert large - set(PLANS) == set()
