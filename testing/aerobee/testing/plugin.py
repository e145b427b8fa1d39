"""The pytest plugin: a cluster for a session, and a topic for each test.

Loaded in every project that has Aerobee installed, so it imports nothing of it before a test asks
for one of its fixtures.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aerobee.testing.any_loop_clients import (
        BlockingClusterConsumer,
        BlockingClusterProducer,
        ClusterConsumer,
        ClusterProducer,
    )
    from aerobee.testing.real_cluster import RealCluster

INI = "aerobee_cluster"
INSIDE, PROCESSES = "inside", "processes"
NAME_MAX = 60
PACKAGES = ("aerobee", "apache")
"""All that is installed with this plugin."""
KEPT = pytest.StashKey[list[str]]()
"""Folders that stay."""
WORKER_KEPT = "aerobee_kept"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    _spare_asserts(pluginmanager)
    group = parser.getgroup("aerobee")
    group.addoption(
        "--aerobee-keep",
        action="store_true",
        help="keep the folder of the fixture aerobee_cluster, and say where it is",
    )
    parser.addini(
        INI,
        f"brokers of the fixture aerobee_cluster: {INSIDE} (of this process, the default) or "
        f"{PROCESSES}",
        default=INSIDE,
    )


def _spare_asserts(plugins: pytest.PytestPluginManager) -> None:
    """pytest rewrites the asserts of all that is installed with a plugin, to explain those that
    fail. Ours are no tests, and it would take seconds where nothing is cached. It has no public way
    to refuse, so if its own names change, it is slow again and nothing else."""
    marked = getattr(plugins.rewrite_hook, "_must_rewrite", None)
    judged = getattr(plugins.rewrite_hook, "_marked_for_rewrite_cache", None)
    if isinstance(marked, set) and isinstance(judged, dict):
        marked.difference_update(PACKAGES)
        judged.clear()


def _note_kept(config: pytest.Config, folder: str) -> None:
    """To be said at the end; by a worker of xdist, whose output goes nowhere, to its controller."""
    told: dict[str, list[str]] | None = getattr(config, "workeroutput", None)
    if told is None:
        config.stash.setdefault(KEPT, []).append(folder)
    else:
        told.setdefault(WORKER_KEPT, []).append(folder)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of xdist has ended."""
    for folder in getattr(node, "workeroutput", {}).get(WORKER_KEPT, ()):
        _note_kept(node.config, folder)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for folder in config.stash.get(KEPT, []):
        terminalreporter.write_line(f"aerobee: a cluster's folder is kept: {folder}")


@pytest.fixture(scope="session")
def aerobee_cluster(request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    """A running cluster, the same for all tests of this process; workers of xdist have one each.

    `aerobee_cluster.nameservers` is what clients are given. Those without an address find it, too,
    and none finds another cluster of this machine: AEROBEE_NAMESERVER has it for the session.
    """
    kind = request.config.getini(INI)
    if kind not in (INSIDE, PROCESSES):
        raise pytest.UsageError(f"{INI} is {kind!r}; it must be {INSIDE} or {PROCESSES}")
    from aerobee.testing import RealCluster  # By way of it, a missing extra is named.

    folder = Path(tempfile.mkdtemp(prefix="aerobee-"))
    is_kept = request.config.getoption("--aerobee-keep")
    try:
        with (
            RealCluster(folder, processes=kind == PROCESSES) as cluster,
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setenv("AEROBEE_NAMESERVER", cluster.nameservers)
            yield cluster
    finally:
        if is_kept:
            _note_kept(request.config, str(folder))
        else:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def aerobee_topic(aerobee_cluster: RealCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that this test has alone; it is deleted afterwards."""
    readable = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name)[:NAME_MAX].strip("-")
    name = f"{readable}-{os.urandom(4).hex()}"
    aerobee_cluster.create_topic(name)
    yield name
    aerobee_cluster.delete_topic(name)


@pytest.fixture
def aerobee_producer(aerobee_cluster: RealCluster) -> Iterator[ClusterProducer]:
    """Sends messages, from any event loop."""
    from aerobee.testing.any_loop_clients import ClusterProducer

    producer = ClusterProducer(aerobee_cluster)
    producer.open()
    yield producer
    producer.close()


@pytest.fixture
def aerobee_consumer(aerobee_cluster: RealCluster, aerobee_topic: str) -> Iterator[ClusterConsumer]:
    """Receives what is sent to `aerobee_topic`, from any event loop."""
    from aerobee.testing.any_loop_clients import ClusterConsumer

    consumer = ClusterConsumer(aerobee_cluster, aerobee_topic, f"reader-{aerobee_topic}")
    yield consumer
    consumer.close()


@pytest.fixture
def aerobee_blocking_producer(aerobee_producer: ClusterProducer) -> BlockingClusterProducer:
    """Sends messages, without an event loop."""
    return aerobee_producer.blocking


@pytest.fixture
def aerobee_blocking_consumer(aerobee_consumer: ClusterConsumer) -> BlockingClusterConsumer:
    """Receives what is sent to `aerobee_topic`, without an event loop."""
    return aerobee_consumer.blocking
