"""Quotas in a cluster, as people have them: real processes, commands, users."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.access.credentials import (
    FILE_VARIABLE,
    Credentials,
    KeyPair,
    credentials_of_environment,
)
from aerobee.client_core import Message, user_credentials
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import Method
from aerobee.producer_client import BlockingProducer
from aerobee.runtime.errors import QuotaExceeded
from aerobee.v1 import broker_pb2
from tests.support.local_up import Up, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

SEND = Method("/aerobee.v1.SendService/Send", broker_pb2.SendRequest, broker_pb2.SendResponse)
IN_TIME_S = 1.0
FAILS = range(1, 5)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--access") as up:
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access" / "cluster-secret")
        up.run("topic", "create", "orders", "--queues", "1")
        wait_until(lambda: up.knows("orders"), "the topic")
        yield up


def created(up: Up, name: str, folder: Path, *policies: tuple[str, str]) -> str:
    """A user that may send to `orders`; the file of its credentials."""
    file = str(folder / f"{name}.keys")
    up.run("user", "create", name, "--credentials-file", file)
    for resource, actions in (("Topic:orders", "Pub,Sub,Get"), *policies):
        up.run("acl", "add", name, resource, actions)
    return file


def keys_in(file: str) -> Credentials:
    pair = KeyPair.parse(Path(file).read_text())
    return user_credentials(pair.access_key, pair.secret_key.decode())


def test_a_greedy_user_is_slowed_and_another_is_not(up: Up, tmp_path: Path) -> None:
    greedy, polite = (keys_in(created(up, name, tmp_path)) for name in ("greedy", "polite"))
    up.run("quota", "set", "user", "greedy", "send_bytes=200000")
    nameserver, body = up.document()["nameserver"], random.Random(1).randbytes(10_000)
    took_s = 0.0

    def send_all() -> None:
        nonlocal took_s
        began = time.monotonic()
        with BlockingProducer(nameserver, credentials=greedy) as producer:
            for _ in range(120):
                producer.send(Message("orders", body))
        took_s = time.monotonic() - began

    sending = threading.Thread(target=send_all)
    with BlockingProducer(nameserver, credentials=polite) as producer:
        producer.send(Message("orders", b"first"))
        sending.start()
        for _ in range(200):
            producer.send(Message("orders", body))
        assert sending.is_alive(), "the polite user waited for the greedy one"
    sending.join()
    # 1.2 MB, of which 0.2 may go at once.
    assert took_s >= 4.5
    (queue,) = up.json("topic", "show", "orders")["queues"]
    assert queue["maxOffset"] == 321, "something was lost or stored twice"


def test_a_consumer_reads_as_fast_as_its_user_may_and_gets_everything(
    up: Up, tmp_path: Path
) -> None:
    up.run("topic", "create", "reads", "--queues", "2")
    wait_until(lambda: up.knows("reads"), "the topic")
    file = created(up, "reader", tmp_path, ("Topic:reads", "Pub,Sub"), ("Group:slow", "Sub"))
    random_bytes = random.Random(2)
    with BlockingProducer(up.document()["nameserver"], credentials=keys_in(file)) as producer:
        bodies = {random_bytes.randbytes(10_000).hex() for _ in range(20)}
        for body in bodies:
            producer.send(Message("reads", body.encode()))
    up.run("quota", "set", "user", "reader", "read_bytes=100000", "cold_read_bytes=100000")
    before, up.environment = up.environment, {FILE_VARIABLE: file}
    began = time.monotonic()
    try:
        got = up.run("consume", "reads", "--group", "slow", "--count", "20", "--from", "first")
    finally:
        up.environment = before
    # 20 bodies that compress to half, of which a second's worth may go at once.
    assert time.monotonic() - began >= 0.8
    assert set(got.stdout.split()) == bodies


async def test_a_quota_takes_effect_at_once_and_ends_as_fast(up: Up, tmp_path: Path) -> None:
    file = created(up, "watched", tmp_path)
    channels = Channels(credentials=credentials_of_environment({FILE_VARIABLE: file}))
    address = up.document()["brokers"][0]["address"]
    request = broker_pb2.SendRequest(topic="orders", body=bytes(2_000))
    refusals: list[QuotaExceeded] = []

    async def send() -> bool:
        try:
            # Less than the time that it is told: it hears the refusal, and does not come again.
            await channels.call(address, SEND, request, timeout_ms=4_000)
        except QuotaExceeded as error:
            refusals.append(error)
            return False
        return True

    async def until(is_sent: bool) -> float:
        began = time.monotonic()
        while await send() is not is_sent:
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    try:
        assert await send()
        await asyncio.to_thread(up.run, "quota", "set", "user", "watched", "send_bytes=100")
        assert await until(False) < IN_TIME_S
        await asyncio.to_thread(up.run, "quota", "delete", "user", "watched")
        assert await until(True) < IN_TIME_S
        assert refusals[0].retry_after_ms > 4_000
        assert "user watched may have 100 send bytes a second" in str(refusals[0])
    finally:
        await channels.close()


def test_who_creates_too_many_topics_is_told_when_to_come_again(up: Up, tmp_path: Path) -> None:
    file = created(up, "maker", tmp_path, ("Topic:made-*", "Create,Get"))
    up.run("quota", "set", "user", "maker", "topics_created=2")
    before, up.environment = up.environment, {FILE_VARIABLE: file}
    try:
        up.run("topic", "create", "made-1", "made-2")
        refused = up.run("topic", "create", "made-3", expect=FAILS)
    finally:
        up.environment = before
    assert "user maker may have 2 topics created an hour" in refused.stderr
    assert "try again in" in refused.stderr
    assert not up.knows("made-3")


@pytest.mark.thorough
def test_quotas_are_set_and_listed_by_super_users_and_go_with_their_users(
    up: Up, tmp_path: Path
) -> None:
    file = created(up, "passing", tmp_path)
    said = up.run("quota", "set", "user", "passing", "send_bytes=5", "connections=none").stdout
    assert said == "the quota of user passing is connections=none send_bytes=5\n"
    up.run("quota", "set", "group", "%DLQ%readers", "read_bytes=7")
    set_ = up.json("quota", "set", "default", "cold_read_requests=9")
    assert set_ == {"kind": "default", "name": "", "limits": {"cold_read_requests": 9}}
    said = up.run("quota", "set", "user", "passing", "send_bytes=default", "read_bytes=6").stdout
    assert said == "the quota of user passing is connections=none read_bytes=6\n"
    listed = {(each["kind"], each["name"]): each["limits"] for each in up.json("quota", "list")}
    assert listed["user", "passing"] == {"connections": 0, "read_bytes": 6}
    assert listed["group", "%DLQ%readers"] == {"read_bytes": 7}
    assert listed["default", ""] == {"cold_read_requests": 9}
    assert listed["built-in", ""]["connections"] == 20_000
    for words, said in (
        (("user", "nobody", "send_bytes=1"), "there is no user 'nobody'"),
        (("group", "readers", "send_bytes=1"), "a group has no quota of send_bytes"),
        (("user", "passing", "sent_bytes=1"), "there is no quota 'sent_bytes'"),
        (("user", "passing", "send_bytes=0"), "sets no limit"),
        (("user", "passing", "read_bytes=default", "connections=default"), "nothing would be left"),
        (("topic", "orders", "send_bytes=1"), "say whose quota it is"),
    ):
        assert said in up.run("quota", "set", *words, expect=FAILS).stderr
    before, up.environment = up.environment, {FILE_VARIABLE: file}
    try:
        for command in (("set", "default", "send_bytes=none"), ("list",), ("delete", "default")):
            refused = up.run("quota", *command, expect=FAILS)
            assert "is not a super user" in refused.stderr
    finally:
        up.environment = before
    up.run("quota", "delete", "default")
    assert "no quota of its own" in up.run("quota", "delete", "default", expect=FAILS).stderr
    up.run("user", "delete", "passing", "--yes")
    assert ("user", "passing") not in {
        (each["kind"], each["name"]) for each in up.json("quota", "list")
    }
