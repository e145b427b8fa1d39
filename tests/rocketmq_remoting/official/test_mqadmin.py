"""Apache's mqadmin, unchanged: what it shows of a cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rocketmq_remoting.official.programs import TOOLS
from tests.support.local_up import Up, received, running, sent
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow
MQADMIN = TOOLS["mqadmin-5.3.3"]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if MQADMIN.missing:
        pytest.skip(MQADMIN.missing)
    with running(tmp_path_factory.mktemp("cluster"), "--brokers", "2") as up:
        yield up


def told(up: Up, home: Path, *command: str) -> str:
    """Both outputs: it reports failures in one, with exit code 0."""
    done = subprocess.run(
        MQADMIN.command_line(*command, "-n", up.document()["nameserver"]),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "HOME": str(home)},  # it writes logs there
    )
    return done.stdout + done.stderr


def test_what_mqadmin_shows(up: Up, tmp_path: Path) -> None:
    up.run("topic", "create", "honey", "--queues", "4")
    sent(up, "honey", ["one", "three"])
    sent(up, "honey", ["two"], "--key", "k2")
    received(up, "honey", "readers", 3)
    clusters = told(up, tmp_path, "clusterList")
    assert clusters.count("aerobee 0") == 2, clusters
    assert "Exception" not in clusters
    assert told(up, tmp_path, "topicList").split() == ["honey"]
    assert told(up, tmp_path, "topicRoute", "-t", "honey").count('"readQueueNums":2') == 2
    status = told(up, tmp_path, "topicStatus", "-t", "honey").splitlines()
    queues = [line.split() for line in status if line.startswith("broker-")]
    assert sum(int(queue[3]) for queue in queues) == 3, status
    progress = told(up, tmp_path, "consumerProgress", "-g", "readers")
    assert "Diff Total: 0" in progress, progress
    found = told(up, tmp_path, "queryMsgByKey", "-t", "honey", "-k", "k2")
    assert "Exception" not in found, found
    message_id = found.splitlines()[-1].split()[0]
    viewed = told(up, tmp_path, "queryMsgById", "-t", "honey", "-i", message_id)
    assert "[k2]" in viewed, viewed
    address = up.document()["brokers"][0]["address"]
    assert "brokerVersionDesc" in told(up, tmp_path, "brokerStatus", "-b", address)
    refused = told(up, tmp_path, "updateTopic", "-t", "new", "-b", address)
    assert "aerobee topic create" in refused, refused
