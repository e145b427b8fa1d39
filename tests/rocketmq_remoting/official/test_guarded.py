"""Apache's remoting clients, unchanged, at a cluster with TLS and access control."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rocketmq_remoting.official.scene import (
    Scene,
    as_user,
    bodies,
    is_quiet,
    pushed,
    trusting,
)
from tests.rpc.core.interop.programs import Program
from tests.support.local_up import Up, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Commands have all rights."""
    rules = {"timeout_ms": 100, "check_interval_ms": 200, "checks_max": 1_000}
    settings = [f"--broker-set=transactions.{name}={value}" for name, value in rules.items()]
    folder = tmp_path_factory.mktemp("cluster")
    with running(folder, "--brokers", "2", "--tls", "--access", *settings) as up:
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access" / "cluster-secret")
        yield up


def test_a_signed_client_does_what_its_user_may(
    program: Program, guarded: Up, tmp_path: Path
) -> None:
    shop = f"shop-{program.language}"
    keys = as_user(guarded, shop, tmp_path)
    scene = Scene(program, guarded, tmp_path, {**trusting(guarded), **keys})
    scene.begin("guarded")
    with scene.producer() as producer:
        refused = producer.ask("send", topic=scene.topic, body="too early")["error"]
        # The last is said if the broker refused: new topics may begin at any that is open.
        told = (f"Topic:{scene.topic}", "No route info", f"Topic: {scene.topic}, BrokersSent")
        assert any(each in refused for each in told), refused
        guarded.run("acl", "add", shop, f"Topic:{scene.topic}", "Pub,Sub")
        guarded.run("acl", "add", shop, f"Group:{scene.group}", "Sub")
        (sent,) = scene.send(producer, "one", key="k1", properties={"fails": "1"})
        producer.ask("send", topic=scene.topic, messages=[{"body": "two"}, {"body": "three"}])
        scene.send(producer, "asked", end="open", properties={"answer": "commit"})
        with scene.consumer() as consumer:
            messages = pushed(consumer, 5)
            assert is_quiet(consumer)
        viewed = producer.ask("view", topic=scene.topic, id=sent["offset_id"])
    assert sorted(bodies(messages)) == ["asked", "one", "one", "three", "two"]
    assert viewed["body"] == "one"


def test_a_client_without_keys_is_refused(program: Program, guarded: Up, tmp_path: Path) -> None:
    scene = Scene(program, guarded, tmp_path, trusting(guarded))
    scene.begin("unsigned")
    with scene.producer() as producer:
        assert "error" in producer.ask("send", topic=scene.topic, body="x")


def test_a_client_that_does_not_encrypt_is_not_heard(
    program: Program, guarded: Up, tmp_path: Path
) -> None:
    scene = Scene(
        program, guarded, tmp_path, as_user(guarded, f"plain-{program.language}", tmp_path)
    )
    scene.begin("plain")
    with scene.producer() as producer:
        assert "error" in producer.ask("send", topic=scene.topic, body="x")
