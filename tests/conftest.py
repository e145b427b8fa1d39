"""What all tests share: property tests take the same examples everywhere and judge results, not the
speed of a busy machine; nothing that a test starts finds or leaves anything in the user's home;
of several forks each runs whole files, so that what the tests of a file share is set up once.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.forked_tests import Forks
from tests.support.memory_folder import has_memory, memory_folder
from tests.support.property_runs import register_profiles
from tests.support.warm_start import warm_starts

if TYPE_CHECKING:
    from aerobee.testing import RealCluster


def keep_what_is_compiled() -> None:
    """Whatever the environment says: hundreds of programs that tests start would else compile each
    module again, which is more than half of a broker's start."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


keep_what_is_compiled()
register_profiles()
settings.load_profile("fixed")

LONG_FILES = (
    "docs/test_examples.py",
    "failover/test_failover.py",
    "consumer_client/test_failover.py",
    "broker/test_roles_failover.py",
    "broker/test_roles_old_copy.py",
    "broker/test_hung_disk.py",
    "cli/test_client_commands.py",
    "cli/test_operator_commands.py",
    "cli/test_up.py",
    "rocketmq_api/test_deliveries.py",
    "rocketmq_api/official/test_consumers.py",
    "faults/test_killed_processes.py",
    "faults/test_store_bit_flips.py",
    "nameserver/test_election_torture.py",
    "simulation/test_power_cuts.py",
    "simulation/test_cluster.py",
    "torture/test_kill_broker.py",
    "rpc/core/test_h2spec.py",
)
"""Those of more than about 20 s; of h2spec's cases, where Go has not compiled them yet."""

ON_SPARK = "tests/offset_audit"
"""All of it in one fork, so that there is one session of Spark, and one JVM on few cores."""
OFF_SPARK = tuple(
    f"{ON_SPARK}/damages/test_{name}.py"
    for name in ("cluster_damages", "motion", "random_damages", "damage_traces")
)
"""But for these, which are long and need none."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="run tests in so many forks")


def pytest_configure(config: pytest.Config) -> None:
    if count := config.getoption("--forks"):
        config.pluginmanager.register(Forks(count, scope_of))


def scope_of(nodeid: str) -> str:
    """Of which a fork takes all tests, in order: a file, or a folder that shares more."""
    return ON_SPARK if is_on_spark(nodeid) else nodeid.partition("::")[0]


def is_on_spark(nodeid: str) -> bool:
    return nodeid.startswith(ON_SPARK) and not nodeid.startswith(OFF_SPARK)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests, millions of objects, stay to the end: the collector of garbage, which
    would look through all of them again and again, is kept away from them."""
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: begun last, one would keep its fork busy when others have nothing to do."""
    order = {name: place for place, name in enumerate(OFF_SPARK)}
    order |= {f"tests/{name}": place for place, name in enumerate(LONG_FILES, len(order))}

    def place(item: pytest.Item) -> int:
        if is_on_spark(item.nodeid):
            return -1
        return order.get(item.nodeid.partition("::")[0], len(order))

    items.sort(key=place)


def share_java_classes(home: Path) -> None:
    """What Java keeps of its classes, as a link from a home, so that some thirty JVMs of a run
    start in a third of the time; it stays in this environment, for other runs."""
    shared = Path(sys.prefix) / ".java-classes"
    shared.mkdir(exist_ok=True, mode=0o700)
    link = home / ".cache" / "aerobee" / "java-classes"
    link.parent.mkdir(parents=True)
    link.symlink_to(shared, target_is_directory=True)


@pytest.fixture(scope="session")
def aerobee_cluster(aerobee_cluster: RealCluster) -> RealCluster:
    """The plugin's, for those who name its address. Other tests of this process are about clients
    that are given none."""
    del os.environ["AEROBEE_NAMESERVER"]
    return aerobee_cluster


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder as HOME, of this process and of all that it starts: broadcasting consumers
    keep their offsets there, and would go on where an earlier run of the tests ended."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        share_java_classes(folder)
        yield folder


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """As always, and in memory for tests marked `many_files`; with `--basetemp` all are there, for
    somebody who looks at what a failed one leaves."""
    is_elsewhere = request.config.getoption("basetemp") is not None
    if request.node.get_closest_marker("many_files") and has_memory() and not is_elsewhere:
        with memory_folder() as folder:
            yield folder
    else:
        yield request.getfixturevalue("tmp_path")


@pytest.fixture(scope="session", autouse=True)
def programs_start_warm() -> Iterator[None]:
    """Programs of this project that a test starts begin as forks, in milliseconds."""
    with warm_starts():
        yield
