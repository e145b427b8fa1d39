"""Apache's mqadmin, unchanged: what it shows of a cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.rocketmq_remoting.official.programs import PROGRAMS, TOOLS
from tests.rocketmq_remoting.official.scene import Scene, as_user, pushed, trusting
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


def told(up: Up, home: Path, *command: str, environment: Mapping[str, str] | None = None) -> str:
    """Both outputs: it reports failures in one, with exit code 0."""
    done = subprocess.run(
        MQADMIN.command_line(*command, "-n", up.document()["nameserver"]),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=home,  # it writes logs and what consumers say of themselves
        env={**os.environ, "HOME": str(home), **(environment or {})},
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
    refused = told(up, tmp_path, "updateBrokerConfig", "-b", address, "-k", "a", "-v", "b")
    assert "the settings in the broker's file" in refused, refused


def test_mqadmin_speaks_tls_if_it_is_told_to(tmp_path: Path) -> None:
    if MQADMIN.missing:
        pytest.skip(MQADMIN.missing)
    with running(tmp_path, "--tls") as up:
        up.run("topic", "create", "honey")
        sent(up, "honey", ["one"])
        by_tls = trusting(up)
        listed = told(up, tmp_path, "topicList", environment=by_tls)
        assert "honey" in listed.splitlines(), listed
        # Its nameserver tells it which broker to ask.
        status = told(up, tmp_path, "topicStatus", "-t", "honey", environment=by_tls)
        assert "Exception" not in status, status
        assert "broker-a" in status, status
        assert "honey" not in told(up, tmp_path, "topicList").splitlines(), "without TLS"


def done(up: Up, home: Path, *command: str, already: str = "no such text") -> str:
    """The output of a command that succeeds. It waits for each answer for 5 s, from the start of
    its JVM on, so on a busy machine it is repeated: that changes nothing, or says `already`."""
    for attempt in range(5):
        found = told(up, home, *command)
        if attempt and already in found:
            return found
        if "RemotingTimeoutException" not in found:
            break
    assert "Exception" not in found, found
    return found


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_what_mqadmin_changes(up: Up, tmp_path: Path) -> None:
    def do(*command: str) -> str:
        return done(up, tmp_path, *command)

    cluster = up.document()["cluster"]
    first = up.document()["brokers"][0]
    do("updateTopic", "-t", "wax", "-c", cluster, "-r", "3", "-w", "3")
    assert do("topicRoute", "-t", "wax").count('"writeQueueNums":3') == 2
    grown = ("-t", "wax", "-b", first["address"], "-r", "4", "-w", "4")
    do("updateTopic", *grown, "-a", "+message.type=FIFO")
    assert do("topicRoute", "-t", "wax").count('"writeQueueNums":4') == 1
    assert "FIFO" in str(up.json("topic", "list"))
    sent(up, "wax", ["one", "two"])
    received(up, "wax", "combs", 2)
    assert "BODY: one" in do("printMsg", "-t", "wax")
    do("updateSubGroup", "-c", cluster, "-g", "combs", "-r", "3")
    assert do("getConsumerConfig", "-g", "combs").split("retryMaxTimes")[1].split()[1] == "3"
    do("resetOffsetByTime", "-g", "combs", "-t", "wax", "-s", "0")
    do("cloneGroupOffset", "-s", "combs", "-d", "swarm", "-t", "wax", "-o", "true")
    assert "Diff Total: 2" in do("consumerProgress", "-g", "swarm")
    assert "combs" in do("statsAll", "-t", "wax")
    assert f"brokerName                                        =  {first['name']}" in do(
        "getBrokerConfig", "-b", first["address"]
    )
    do("wipeWritePerm", "-b", first["name"])
    assert '"perm":4' in do("topicRoute", "-t", "wax")
    do("addWritePerm", "-b", first["name"])
    assert '"perm":4' not in do("topicRoute", "-t", "wax")
    do("deleteSubGroup", "-c", cluster, "-g", "combs", "-r", "true")
    do("deleteTopic", "-c", cluster, "-t", "wax")
    assert "wax" not in do("topicList")


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_what_mqadmin_learns_of_clients(up: Up, tmp_path: Path) -> None:
    scene = Scene(PROGRAMS["java-5.3.3"], up, tmp_path)
    if scene.program.missing:
        pytest.skip(scene.program.missing)
    scene.begin("seen")
    with scene.consumer(tags="a") as consumer, scene.producer() as producer:
        scene.send(producer, "now", tag="a")
        (message,) = pushed(consumer, 1)
        found = done(up, tmp_path, "consumerConnection", "-g", scene.group)
        assert "JAVA" in found
        assert f"{scene.topic} a" in " ".join(found.split()), found
        found = done(up, tmp_path, "producerConnection", "-g", "producers", "-t", scene.topic)
        assert "JAVA" in found
        found = done(up, tmp_path, "consumerStatus", "-g", scene.group)
        assert "Same subscription in the same group" in found
        assert message["topic"] == scene.topic


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Commands have all rights."""
    if MQADMIN.missing:
        pytest.skip(MQADMIN.missing)
    with running(tmp_path_factory.mktemp("guarded"), "--access") as up:
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access" / "cluster-secret")
        yield up


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_what_mqadmin_changes_of_users(
    guarded: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = as_user(guarded, "boss", tmp_path, "--super")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text(
        f"accessKey: {keys['ACCESS_KEY']}\nsecretKey: {keys['SECRET_KEY']}\n"
    )
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    nameserver = guarded.document()["nameserver"]

    def do(*command: str, already: str = "no such text") -> str:
        return done(guarded, tmp_path, *command, "-b", nameserver, already=already)

    new = ("-u", "shop", "-p", "first-secret-of-shop", "-t", "Normal")
    do("createUser", *new, already="already exists")
    assert "shop" in do("getUser", "-u", "shop")
    do("createAcl", "-s", "User:shop", "-r", "Topic:wax", "-a", "Pub,Sub", "-d", "Allow")
    do("updateAcl", "-s", "User:shop", "-r", "Topic:wax", "-a", "Pub", "-d", "Deny")
    shown = " ".join(do("getAcl", "-s", "User:shop").split())
    assert "Topic:wax" in shown, shown
    assert "Deny" in shown, shown
    do("deleteAcl", "-s", "User:shop", "-r", "Topic:wax", already="no such policy")
    do("updateUser", "-u", "shop", "-s", "disable")
    assert "disable" in do("listUser")
    do("deleteUser", "-u", "shop", already="there is no user")
    assert "shop" not in do("listUser")
    broker = guarded.document()["brokers"][0]["address"]
    refused = told(guarded, tmp_path, "deleteUser", "-u", "boss", "-b", broker)
    assert "a nameserver" in refused, refused
