"""Apache's clients sign in, do what policies allow, and hear UNAUTHORIZED else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from apache.rocketmq.v2 import definition_pb2 as v2
from tests.rocketmq_api.official.clients import Client, running_client
from tests.rocketmq_api.official.scene import code_of, received
from tests.rpc.core.interop.programs import Program
from tests.support.local_up import Up, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TELLS_NO_CODE_OF_A_ROUTE = frozenset({"python"})

Connect = Callable[..., AbstractContextManager[Client]]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--access", "--brokers", "2") as up:
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access" / "cluster-secret")
        yield up


@pytest.fixture
def names(program: Program, up: Up) -> dict[str, str]:
    """Topics and the group of one client."""
    words = ("orders", "readable", "hidden", "no-such", "readers", "user")
    names = {word: f"{word}-{program.language}" for word in words}
    topics = [names[word] for word in words[:3]]
    up.run("topic", "create", *topics, "--queues", "4")
    wait_until(lambda: all(map(up.knows, topics)), "the topics")
    return names


@pytest.fixture
def connect(up: Up, program: Program, names: dict[str, str], tmp_path: Path) -> Connect:
    """With the keys of a user, who has some rights; `secret` and `key` instead of these."""
    user = names["user"]
    up.run("user", "create", user, "--credentials-file", str(tmp_path / "keys"))
    up.run("acl", "add", user, f"Topic:{names['orders']}", "Pub,Sub")
    up.run("acl", "add", user, f"Topic:{names['readable']}", "Sub")
    up.run("acl", "add", user, f"Group:{names['readers']}", "Sub")
    words = (tmp_path / "keys").read_text().split()

    def connected(role: str, *rest: str, **others: str) -> AbstractContextManager[Client]:
        keys = {"key": words[2], "secret": words[5], **others}
        environment = {"TEST_ACCESS_KEY": keys["key"], "TEST_SECRET_KEY": keys["secret"]}
        address = up.document()["nameserver"]
        return running_client(program, role, address, *rest, home=tmp_path, environment=environment)

    return connected


@pytest.mark.thorough
def test_it_does_what_policies_allow_and_nothing_without_its_keys(
    up: Up, program: Program, names: dict[str, str], connect: Connect
) -> None:
    bodies = [f"order {number}" for number in range(10)]
    # The access point passes calls on to the broker that has the queue, which judges them as well.
    with connect("producer", names["orders"]) as producer:
        for body in bodies:
            assert "id" in producer.ask("send", topic=names["orders"], body=body)
        refused = producer.ask("send", topic=names["readable"], body="x")
        assert code_of(refused) == v2.UNAUTHORIZED
        assert f"Pub on Topic:{names['readable']}" in refused["error"]
        told: list[dict[str, Any]] = []
        for word in ("hidden", "no-such"):  # what is there is not told either
            told.append(producer.ask("send", topic=names[word], body="x"))
            _check_unauthorized(program, told[-1])
        hidden, unknown = (answer["error"] for answer in told)
        assert _shape(hidden, names["hidden"]) == _shape(unknown, names["no-such"])
    with connect("simple", names["readers"], names["orders"]) as consumer:
        missing = set(bodies)
        while missing:
            for each in received(consumer, 1):
                missing.discard(each["body"])
                assert "error" not in consumer.ask("ack", id=each["id"])
    for wrong in ({"secret": "not-the-secret"}, {"key": "nobody"}):
        if program.language == "go":  # without topics it does not start
            with (
                pytest.raises(AssertionError, match="UNAUTHORIZED"),
                connect("producer", names["orders"], **wrong),
            ):
                pass
        else:
            with connect("producer", **wrong) as producer:
                answer = producer.ask("send", topic=names["orders"], body="forged")
                _check_unauthorized(program, answer)
    shown = up.json("topic", "show", names["orders"])
    assert sum(queue["maxOffset"] for queue in shown["queues"]) == len(bodies)


def _shape(error: str, topic: str) -> str:
    """Without what differs from call to call: the topic, ids, times."""
    return re.sub(r"[0-9A-Fa-f-]{8,}|\d+", "N", error.replace(topic, "TOPIC"))


def _check_unauthorized(program: Program, answer: dict[str, Any]) -> None:
    """A send that is refused by its route."""
    assert "error" in answer
    if program.language not in TELLS_NO_CODE_OF_A_ROUTE:
        assert code_of(answer) == v2.UNAUTHORIZED, answer
