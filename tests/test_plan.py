"""The plan inside each source root: what stands on what, and that no arrow points back up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.product_sources import ROOT, Source, product_sources

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
        ("delayed", "popping", "recurring", "tier"),
        ("observe",),
        ("edge", "run.py"),
        ("wiring.py",),
        ("app.py",),
    ),
    "runtime": (
        (
            "beat.py",
            "call_context.py",
            "clock.py",
            "errors.py",
            "event_loop.py",
            "lazy_names.py",
            "own_version.py",
            "place.py",
            "printable.py",
            "private_files.py",
            "token_bucket.py",
            "toml_lines.py",
            "varint.py",
            "waiting.py",
        ),
        (
            "config.py",
            "freed_memory.py",
            "log_limit.py",
            "loop_turns.py",
            "machine.py",
            "retry.py",
            "task_groups.py",
        ),
        (
            "addresses.py",
            "busy_poll.py",
            "config_check.py",
            "log_config.py",
            "spared_collector.py",
        ),
        (
            "health.py",
            "log.py",
            "metrics",
        ),
        (
            "audit_log",
            "collector_pauses.py",
            "loop_delay.py",
            "supervise.py",
            "watched_file.py",
            "worker.py",
        ),
    ),
    "store": (("format",), ("engine",), ("flush", "repair", "tier")),
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
        ("frames",),
        ("rules", "tables.py"),
        ("checks", "sources"),
        ("doctor", "outputs"),
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
        ("topic_keep.py",),
        (
            "config_command.py",
            "config_reference.py",
            "console_pages.py",
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
        ("grpcio_client.py", "imports.py", "measure.py", "peer_names.py", "transport.py"),
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
        ("consume.py", "listener_load.py", "produce.py", "replica_master.py"),
        ("client_loops.py", "listeners.py", "suite.py"),
        (
            "audit",
            "brokers.py",
            "cold_read.py",
            "commits.py",
            "delay.py",
            "filters.py",
            "growth.py",
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


class Root:
    """One source root: its rooms, and the arrows between them."""

    def __init__(self, name: str, sources: Sequence[Source]) -> None:
        self.name = name
        self.rooms = {_room(source) for source in sources}
        self.lines = sum(source.lines for source in sources)
        self.arrows: Arrows = defaultdict(list)
        for source in sources:
            self._follow(source)

    @property
    def has_folders(self) -> bool:
        return any(not room.endswith(".py") for room in self.rooms)

    def _follow(self, source: Source) -> None:
        here, prefix = _room(source), f"aerobee.{self.name}."
        for module in source.imports_at_run_time:
            if module.startswith(prefix):
                first = module.removeprefix(prefix).split(".")[0]
                there = first if first in self.rooms else f"{first}.py"
                if there in self.rooms and there != here:
                    name = source.name.partition("/")[2]
                    self.arrows[here, there].append(f"{name} imports {module}")


def _room(source: Source) -> str:
    return source.name.split("/")[1]


@pytest.fixture(scope="module")
def roots() -> Mapping[str, Root]:
    names = sorted(path.name for path in ROOT.iterdir() if (path / "aerobee" / path.name).is_dir())
    return {
        name: Root(
            name,
            [
                each
                for each in product_sources()
                if each.name.startswith(f"{name}/") and each.name != f"{name}/__init__.py"
            ],
        )
        for name in names
    }


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
