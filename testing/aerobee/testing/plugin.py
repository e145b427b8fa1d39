"""The pytest plugin: a cluster for a session, and a topic for each test.

Loaded in every project that has Aerobee installed, so it imports nothing of it before a test asks
for one of its fixtures.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
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
TOPIC = "aerobee_topic"
INSIDE, PROCESSES = "inside", "processes"
NAME_MAX = 60
PACKAGES = ("aerobee", "apache")
"""All that is installed with this plugin."""
KEPT = pytest.StashKey[list[tuple[str, str]]]()
"""Folders that stay, each after the worker whose it is; without xdist that is empty."""
WORKER_KEPT = "aerobee_kept"
RUNNING = pytest.StashKey["RealCluster"]()
"""The cluster of the session, while it runs."""


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


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{TOPIC}(queues=0, attributes=None): what the fixture aerobee_topic creates; "
        "see RealCluster.create_topic",
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


def _worker(config: pytest.Config) -> str:
    """The worker of xdist that this is; empty without one."""
    told: dict[str, str] = getattr(config, "workerinput", {})
    return told.get("workerid", "")


def _note_kept(config: pytest.Config, folder: str) -> None:
    """To be said at the end; by a worker of xdist, whose output goes nowhere, to its controller."""
    told: dict[str, list[str]] | None = getattr(config, "workeroutput", None)
    if told is None:
        config.stash.setdefault(KEPT, []).append(("", folder))
    else:
        told.setdefault(WORKER_KEPT, []).append(folder)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of xdist has ended."""
    for folder in getattr(node, "workeroutput", {}).get(WORKER_KEPT, ()):
        node.config.stash.setdefault(KEPT, []).append((node.gateway.id, folder))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for worker, folder in config.stash.get(KEPT, []):
        whose = f"the cluster of worker {worker}" if worker else "a cluster"
        terminalreporter.write_line(f"aerobee: the folder of {whose} is kept: {folder}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """What a test leaves dead, stopped, hung or full would fail every later one. Before fixtures
    end: theirs need the brokers, too."""
    try:
        cluster = item.config.stash.get(RUNNING, None)
        if cluster is not None:
            what = f"what {item.nodeid} left of the cluster could not be started again"
            with _short_in(item.config, what, cluster.folder):
                cluster.heal()
    finally:
        yield


def _short(
    request: pytest.FixtureRequest, what: str, folder: Path | None = None
) -> AbstractContextManager[None]:
    """An error inside fails the test in a few lines, without frames of ours."""
    return _short_in(request.config, f"{request.fixturename}: {what}", folder)


def _short_in(
    config: pytest.Config, what: str, folder: Path | None
) -> AbstractContextManager[None]:
    from aerobee.testing.short_failures import short_failure

    if config.getoption("fulltrace"):
        return contextlib.nullcontext()
    return short_failure(what, folder)


@pytest.fixture(scope="session")
def aerobee_cluster(request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    """A running cluster, the same for all tests of this process; workers of xdist have one each.

    `aerobee_cluster.nameservers` is what clients are given. Those without an address find it, too,
    and none finds another cluster of this machine: AEROBEE_NAMESERVER has it for the session.
    """
    kind = request.config.getini(INI)
    if kind not in (INSIDE, PROCESSES):
        refusal = f"{INI} is {kind!r} in pytest's ini file; it must be {INSIDE} or {PROCESSES}"
        pytest.fail(refusal, pytrace=False)
    with _short(request, "no cluster"):
        from aerobee.testing import RealCluster  # By way of it, a missing extra is named.
        from aerobee.testing.short_failures import logged_to

    worker = _worker(request.config)
    folder = Path(tempfile.mkdtemp(prefix=f"aerobee-{worker}-" if worker else "aerobee-"))
    is_kept = request.config.getoption("--aerobee-keep")
    cluster = RealCluster(folder, processes=kind == PROCESSES)
    try:
        with logged_to(folder), pytest.MonkeyPatch.context() as patch:
            with _short(request, "the cluster did not start", folder):
                cluster.start()
            patch.setenv("AEROBEE_NAMESERVER", cluster.nameservers)
            request.config.stash[RUNNING] = cluster
            yield cluster
            del request.config.stash[RUNNING]
            with _short(request, "the cluster did not stop", folder):
                cluster.stop()
    finally:
        if is_kept:
            _note_kept(request.config, str(folder))
        else:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def aerobee_topic(aerobee_cluster: RealCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that this test has alone; it is deleted afterwards.

    `@pytest.mark.aerobee_topic(queues=1)` says what kind, with arguments of
    `RealCluster.create_topic`.
    """
    from aerobee.runtime.errors import TopicNotFound

    name = _own_name(request)
    marker = request.node.get_closest_marker(TOPIC)
    with _short(request, f"topic {name} could not be created", aerobee_cluster.folder):
        aerobee_cluster.create_topic(name, **(marker.kwargs if marker is not None else {}))
    yield name
    undone = f"topic {name} could not be deleted"
    with (
        _short(request, undone, aerobee_cluster.folder),
        contextlib.suppress(TopicNotFound),  # The test may have deleted it.
    ):
        aerobee_cluster.delete_topic(name)


@pytest.fixture
def aerobee_group(request: pytest.FixtureRequest) -> str:
    """The name of a consumer group that this test has alone."""
    return _own_name(request)


def _own_name(request: pytest.FixtureRequest) -> str:
    readable = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name)[:NAME_MAX].strip("-")
    return f"{readable}-{os.urandom(4).hex()}"


@pytest.fixture
def aerobee_producer(
    aerobee_cluster: RealCluster, request: pytest.FixtureRequest
) -> Iterator[ClusterProducer]:
    """Sends messages, from any event loop."""
    from aerobee.testing.any_loop_clients import ClusterProducer

    producer = ClusterProducer(aerobee_cluster)
    with _short(request, "the producer could not be opened", aerobee_cluster.folder):
        producer.open()
    yield producer
    with _short(request, "the producer could not be closed", aerobee_cluster.folder):
        producer.close()


@pytest.fixture
def aerobee_consumer(
    aerobee_cluster: RealCluster, aerobee_topic: str, request: pytest.FixtureRequest
) -> Iterator[ClusterConsumer]:
    """Receives what is sent to `aerobee_topic`, from any event loop."""
    from aerobee.testing.any_loop_clients import ClusterConsumer

    consumer = ClusterConsumer(aerobee_cluster, aerobee_topic, f"reader-{aerobee_topic}")
    yield consumer
    with _short(request, "the consumer could not be closed", aerobee_cluster.folder):
        consumer.close()


@pytest.fixture
def aerobee_blocking_producer(aerobee_producer: ClusterProducer) -> BlockingClusterProducer:
    """Sends messages, without an event loop."""
    return aerobee_producer.blocking


@pytest.fixture
def aerobee_blocking_consumer(aerobee_consumer: ClusterConsumer) -> BlockingClusterConsumer:
    """Receives what is sent to `aerobee_topic`, without an event loop."""
    return aerobee_consumer.blocking
