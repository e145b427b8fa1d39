"""The plugin as users have it: a project of its own, whose tests get a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from aerobee import errors

ROOT = Path(__file__).resolve().parents[2]
# As projects that have them: other plugins, ours among them, are not loaded by themselves.
PLUGINS = ("-p", "aerobee.testing.plugin", "-p", "pytest_asyncio.plugin")
DISK_MAX = 30 * 1024 * 1024

EXAMPLE = """
import asyncio
import os
import time
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from aerobee.client_core import ClusterConnection
from aerobee.consumer_client import PullConsumer, StartFrom
from aerobee.producer_client import BlockingProducer, Message, Producer


def used_bytes(folder):
    return sum(path.stat().st_blocks * 512 for path in Path(folder).rglob("*"))


def test_a_client_without_an_address_finds_this_cluster(
    aerobee_topic, aerobee_blocking_consumer
):
    with BlockingProducer() as producer:
        producer.send(Message(aerobee_topic, b"here"))
    assert [one.body for one in aerobee_blocking_consumer.receive()] == [b"here"]


@pytest.mark.asyncio
async def test_own_clients(aerobee_cluster, aerobee_topic):
    async with Producer(aerobee_cluster.nameservers) as producer:
        await producer.send(Message(aerobee_topic, b"own"))
    consumer = PullConsumer(
        "g", nameservers=aerobee_cluster.nameservers, start_from=StartFrom.FIRST
    )
    async with consumer.subscribe(aerobee_topic):
        [message] = await consumer.poll(1, timeout=10)
    assert message.body == b"own"


@pytest.mark.asyncio
async def test_asyncio(aerobee_producer, aerobee_consumer, aerobee_topic):
    await aerobee_producer.send_batch([Message(aerobee_topic, b"a"), Message(aerobee_topic, b"b")])
    assert [one.body for one in await aerobee_consumer.receive(2)] == [b"a", b"b"]
    await aerobee_producer.send(Message(aerobee_topic, b"c"))
    assert [one.body for one in await aerobee_consumer.receive()] == [b"c"]


def test_a_loop_of_its_own(aerobee_producer, aerobee_consumer, aerobee_topic):
    async def main():
        await aerobee_producer.send(Message(aerobee_topic, b"any"))
        return await aerobee_consumer.receive()

    assert asyncio.run(main())[0].body == b"any"


def test_plain(
    aerobee_cluster, aerobee_blocking_producer, aerobee_blocking_consumer, aerobee_topic
):
    aerobee_blocking_producer.send(Message(aerobee_topic, b"plain"))
    assert aerobee_blocking_consumer.receive()[0].body == b"plain"
    with BlockingProducer(aerobee_cluster.nameservers) as producer:
        producer.send(Message(aerobee_topic, b"blocking"))
    assert aerobee_blocking_consumer.receive()[0].body == b"blocking"
    with pytest.raises(AssertionError, match="0 of 1 messages came"):
        aerobee_blocking_consumer.receive(timeout=0.1)


def test_size_and_name(aerobee_cluster, aerobee_topic):
    assert aerobee_topic.startswith("test_size_and_name-")
    print("folder", aerobee_cluster.folder, used_bytes(aerobee_cluster.folder))
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    paths = [str(root) for root in ROOT.iterdir() if (root / "aerobee").is_dir()]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TMPDIR": str(folder),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",  # Those of this run are not the project's.
    }
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *PLUGINS, *options]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=110
    )


def write_project(folder: Path, test: str = EXAMPLE) -> None:
    (folder / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n", "utf-8"
    )
    (folder / "test_example.py").write_text(test, "utf-8")


def folders_of(output: str) -> list[tuple[Path, int]]:
    """Each folder that a test has told, with its size in bytes."""
    found = [line.split() for line in output.splitlines() if "folder /" in line]
    return [(Path(words[-2]), int(words[-1])) for words in found]


@pytest.mark.slow
def test_tests_of_every_kind_have_a_cluster_that_leaves_nothing(tmp_path: Path) -> None:
    write_project(tmp_path)
    done = run_pytest(tmp_path, "-rP")
    assert "6 passed" in done.stdout, done.stdout + done.stderr
    [(folder, size)] = folders_of(done.stdout)
    assert 0 < size < DISK_MAX
    assert not folder.exists()


@pytest.mark.thorough
@pytest.mark.slow
def test_workers_of_xdist_have_a_cluster_each(tmp_path: Path) -> None:
    write_project(tmp_path)
    told = "def test_{}(aerobee_cluster):\n    print('folder', aerobee_cluster.folder, 0)\n"
    (tmp_path / "test_one.py").write_text(told.format("one"), "utf-8")
    (tmp_path / "test_other.py").write_text(told.format("other"), "utf-8")
    options = ("-p", "xdist.plugin", "-n", "2", "--dist", "loadfile", "-rP", "--aerobee-keep")
    done = run_pytest(tmp_path, *options, "test_one.py", "test_other.py")
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    (one, _), (other, _) = folders_of(done.stdout)
    assert one != other
    kept = [line for line in done.stdout.splitlines() if "folder of the cluster" in line]
    for worker in ("gw0", "gw1"):
        [line] = [line for line in kept if f"the cluster of worker {worker} is kept" in line]
        folder = Path(line.rpartition(" ")[2])
        assert folder in (one, other)
        assert folder.name.startswith(f"aerobee-{worker}-")
        assert (folder / "broker-a").is_dir()


@pytest.mark.slow
def test_brokers_may_be_processes_whose_folder_is_kept(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        """
from aerobee.producer_client import Message
from aerobee.testing import faults


def test_it(aerobee_cluster, aerobee_blocking_producer, aerobee_blocking_consumer, aerobee_topic):
    aerobee_blocking_producer.send(Message(aerobee_topic, b"before"))
    faults.kill(aerobee_cluster)
    aerobee_cluster.start_broker()
    aerobee_blocking_producer.send(Message(aerobee_topic, b"after"))
    received = aerobee_blocking_consumer.receive(2, timeout=60)
    assert sorted(one.body for one in received) == [b"after", b"before"]
""",
    )
    done = run_pytest(tmp_path, "-o", "aerobee_cluster=processes", "--aerobee-keep")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    [line] = [line for line in done.stdout.splitlines() if "is kept: " in line]
    folder = Path(line.rpartition(" ")[2])
    assert list(folder.glob("broker-a/commitlog/*"))
    assert (folder / "broker-a.log").exists()


@pytest.mark.slow
def test_what_a_failed_test_leaves_broken_is_well_for_the_next(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        """
import pytest

from aerobee.producer_client import Message
from aerobee.testing import faults


def leave_killed(cluster):
    faults.kill(cluster)


def leave_stopped(cluster):
    cluster.stop_broker()


def leave_hung(cluster):
    faults.hung_disk(cluster).__enter__()


def leave_full(cluster):
    faults.full_disk(cluster).__enter__()


@pytest.mark.parametrize("leave", [leave_killed, leave_stopped, leave_hung, leave_full])
@pytest.mark.parametrize("fails", [True, False])
def test_it(
    aerobee_cluster, aerobee_topic, aerobee_blocking_producer, aerobee_blocking_consumer,
    leave, fails
):
    if fails:
        leave(aerobee_cluster)
        raise AssertionError("as intended")
    aerobee_blocking_producer.send(Message(aerobee_topic, b"x"))
    assert aerobee_blocking_consumer.receive()[0].body == b"x"
""",
    )
    done = run_pytest(tmp_path)
    assert "4 failed, 4 passed in" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("Error: as intended") >= 4, done.stdout


@pytest.mark.slow
def test_a_broker_that_does_not_start_again_names_the_test_that_left_it(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        """
import shutil

from aerobee.testing import faults


def test_it(aerobee_cluster):
    faults.kill(aerobee_cluster)
    shutil.rmtree(aerobee_cluster.folder / "broker-a")
    (aerobee_cluster.folder / "broker-a").write_text("no folder")
""",
    )
    done = run_pytest(tmp_path)
    assert "1 passed, 1 error in" in done.stdout, done.stdout + done.stderr
    assert "what test_example.py::test_it left of the cluster could not be started" in done.stdout


def failure_of(output: str, test: str) -> list[str]:
    """The lines that say why it failed, without what was captured."""
    _, _, rest = output.partition(f" of {test} ")
    shown = rest.splitlines()[1:]
    end = next(place for place, line in enumerate(shown) if line.startswith(("---", "===", "___")))
    return shown[:end]


def test_a_wrong_kind_of_cluster_is_refused_in_one_line(tmp_path: Path) -> None:
    write_project(tmp_path, "def test_it(aerobee_cluster):\n    pass\n")
    done = run_pytest(tmp_path, "-o", "aerobee_cluster=outside")
    [line] = failure_of(done.stdout, "test_it")
    assert "must be inside or processes" in line


def test_a_failing_fixture_says_what_failed_and_ends_with_the_log(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        """
import logging

import pytest


@pytest.mark.aerobee_topic(attributes={"message.type": "NONSENSE"})
def test_it(aerobee_cluster, aerobee_topic):
    pass


@pytest.fixture(autouse=True)
def said(aerobee_cluster):
    logging.getLogger("aerobee.broker").warning("said by a broker")
""",
    )
    done = run_pytest(tmp_path)
    shown = failure_of(done.stdout, "test_it")
    assert shown[0].startswith("aerobee_topic: topic test_it-"), done.stdout + done.stderr
    assert shown[0].endswith(" could not be created")
    assert "NONSENSE" in shown[1]
    log, said, advice = shown[2:]
    assert log.startswith("the end of /")
    assert log.endswith("/cluster.log:")
    assert said.endswith("WARNING aerobee.broker said by a broker")
    assert "--aerobee-keep" in advice
    whole = run_pytest(tmp_path, "--full-trace").stdout
    assert "real_cluster.py" in whole


@pytest.mark.slow
def test_a_broker_that_does_not_start_shows_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEROBEE_BROKER_STORE_FLUSH_MODE", "nonsense")
    write_project(tmp_path, "def test_it(aerobee_cluster):\n    pass\n")
    done = run_pytest(tmp_path, "-o", "aerobee_cluster=processes")
    what, log, told, _ = failure_of(done.stdout, "test_it")
    assert what == "aerobee_cluster: the cluster did not start"
    assert log.endswith("/broker-a.log:")
    assert "store.flush_mode cannot be 'nonsense'" in told


def test_a_marker_says_what_kind_of_topic(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        """
import pytest
from aerobee.producer_client import Message


@pytest.mark.aerobee_topic(queues=1)
def test_it(aerobee_blocking_producer, aerobee_topic, aerobee_cluster, aerobee_group):
    sent = [aerobee_blocking_producer.send(Message(aerobee_topic, b"x")) for _ in range(3)]
    assert [(one.queue.queue_id, one.queue_offset) for one in sent] == [(0, 0), (0, 1), (0, 2)]
    assert aerobee_group.startswith("test_it-") and aerobee_group != aerobee_topic
    aerobee_cluster.delete_topic(aerobee_topic)
""",
    )
    done = run_pytest(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_project_without_clusters_loads_nothing_of_aerobee(tmp_path: Path) -> None:
    loaded = "[name for name in sys.modules if name.split('.')[0] in ('aerobee', 'grpc', 'numpy')]"
    test = f"import sys\n\n\ndef test_it():\n    assert sorted({loaded}) == EXPECTED\n"
    expected = sorted(["aerobee", "aerobee.testing", "aerobee.testing.plugin"])
    write_project(tmp_path, test.replace("EXPECTED", repr(expected)))
    done = run_pytest(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_package_tells_pytest_of_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [module] = project["entry-points"]["pytest11"].values()
    assert hasattr(import_module(module), "aerobee_cluster")


def test_pytest_leaves_the_package_as_it_is() -> None:
    """It rewrites the asserts of all that is installed with a plugin, unless the plugin objects:
    the first test on a fresh machine would wait for that for seconds."""
    assert not isinstance(errors.__loader__, AssertionRewritingHook)
