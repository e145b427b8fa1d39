"""Apache's client for Python and a quota: it hears TOO_MANY_REQUESTS, and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apache.rocketmq.v2 import definition_pb2 as v2
from tests.rocketmq_api.official.clients import running_client
from tests.rocketmq_api.official.programs import PROGRAMS
from tests.rocketmq_api.official.scene import code_of
from tests.support.local_up import Up, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PYTHON = PROGRAMS["python"]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    if PYTHON.missing:
        pytest.skip(PYTHON.missing)
    with running(tmp_path, "--access", "--brokers", "2") as up:
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access" / "cluster-secret")
        yield up


@pytest.mark.thorough
def test_it_hears_too_many_requests_and_goes_on_when_its_quota_allows(
    up: Up, tmp_path: Path
) -> None:
    address = up.document()["nameserver"]
    up.run("topic", "create", "orders")
    up.run("user", "create", "shop", "--credentials-file", str(tmp_path / "keys"))
    up.run("acl", "add", "shop", "Topic:orders", "Pub,Sub")
    up.run("quota", "set", "user", "shop", "send_bytes=1000")
    words = (tmp_path / "keys").read_text().split()
    keys = {"TEST_ACCESS_KEY": words[2], "TEST_SECRET_KEY": words[5]}
    wait_until(lambda: up.knows("orders"), "the topic")
    with running_client(
        PYTHON, "producer", address, "orders", home=tmp_path, environment=keys
    ) as producer:

        def refused() -> dict[str, Any]:
            # Those of before go first where no other waits; this one is paid off in a minute.
            while "id" in (answer := producer.ask("send", topic="orders", body="x" * 60_000)):
                sent.append(answer["id"])
            return answer

        sent: list[str] = []
        answer = refused()
        assert code_of(answer) == v2.TOO_MANY_REQUESTS
        assert "user shop may have 1000 send bytes a second" in answer["error"]
        up.run("quota", "delete", "user", "shop")
        wait_until(
            lambda: "id" in producer.ask("send", topic="orders", body="later"), "room to send"
        )
    shown = up.json("topic", "show", "orders")
    assert sum(queue["maxOffset"] for queue in shown["queues"]) == len(sent) + 1
