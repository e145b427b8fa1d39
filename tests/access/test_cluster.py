"""A cluster with access control, as people have it: real processes, users, policies, commands."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.access.credentials import KeyPair
from aerobee.client_core import Message, user_credentials
from aerobee.consumer_client import PullConsumer, ReceivedMessage, StartFrom
from aerobee.producer_client import BlockingProducer
from aerobee.runtime.errors import Unauthenticated
from tests.support.local_up import Up, numbers, received, running, sent
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Commands have all rights, by the cluster secret, unless `as_user` says otherwise."""
    with running(tmp_path_factory.mktemp("up"), "--access", "--replicas", "2") as up:
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access" / "cluster-secret")
        yield up


class AsUser:
    """Commands of one user."""

    def __init__(self, up: Up, credentials: str) -> None:
        self.up = up
        self._environment = dict(up.environment)
        self._credentials = credentials

    def __enter__(self) -> Up:
        self.up.environment = {"AEROBEE_CREDENTIALS_FILE": self._credentials}
        return self.up

    def __exit__(self, *_: object) -> None:
        self.up.environment = self._environment


def created(up: Up, name: str, folder: Path, *flags: str) -> AsUser:
    file = folder / f"{name}.credentials"
    done = up.run("user", "create", name, "--credentials-file", str(file), *flags)
    assert "secret_key" not in done.stdout + done.stderr
    assert file.stat().st_mode & 0o077 == 0
    return AsUser(up, str(file))


def test_users_do_what_policies_say_and_refusals_name_the_right(up: Up, tmp_path: Path) -> None:
    shop = created(up, "shop", tmp_path)
    up.run("topic", "create", "orders", "hidden")
    with shop:
        refused = up.run("topic", "show", "orders", expect=range(1, 5))
        assert "Pub or Sub or Get on Topic:orders" in refused.stderr
        assert "shop" in refused.stderr
    up.run("acl", "add", "shop", "Topic:orders*", "Pub,Sub")
    up.run("acl", "add", "shop", "Group:shop*", "Sub")
    with shop:
        sent(up, "orders", numbers(20))
        assert sorted(received(up, "orders", "shop-readers", 20)) == sorted(numbers(20))
        words = {
            up.run("topic", "show", name, expect=range(1, 5)).stderr.replace(name, "NAME")
            for name in ("hidden", "no-such")
        }
        assert len(words) == 1, "a refusal tells whether a topic is there"
        denied = up.run(
            "consume", "orders", "--group", "foreign", "--count", "1", expect=range(1, 5)
        )
        assert "Sub on Group:foreign" in denied.stderr
        for command in (
            ("produce", "hidden"),
            ("topic", "create", "mine"),
            ("topic", "delete", "orders", "--yes"),
            ("user", "list"),
            ("user", "create", "other"),
            ("acl", "add", "shop", "*", "All"),
            ("cluster", "show"),
        ):
            assert "user shop" in up.run(*command, given="x\n", expect=range(1, 5)).stderr, command
    asked = up.run("acl", "test", "shop", "Topic:orders-1", "Pub")
    assert asked.stdout == "allowed: Allow Pub,Sub on Topic:orders* to shop\n"
    tested = up.json("acl", "test", "shop", "Topic:orders-1", "Pub")
    assert (tested["allowed"], tested["reason"]) == (True, "Allow Pub,Sub on Topic:orders* to shop")
    assert "no policy allows it" in up.run("acl", "test", "shop", "Topic:x", "Pub", expect=1).stdout


def test_programs_change_users_and_policies_by_documents(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    kept = up.json("user", "create", "kept", "--credentials-file", str(file))
    assert (kept["user"], kept["credentialsFile"], "secret" in kept) == ("kept", str(file), False)
    printed = up.json("user", "create", "printed")
    listed = {each["user"]: each for each in up.json("user", "list")}
    assert printed.pop("secret")
    assert printed == listed["printed"]
    both = up.run("user", "rotate", "kept", "--credentials-file", "-", "--json", expect=2)
    assert "both print" in both.stderr
    assert up.json("user", "disable", "kept")["enabled"] is False
    policy = up.json("acl", "add", "kept", "Topic:orders", "Pub", "--source", "10.0.0.0/8")
    assert policy in up.json("acl", "list", "kept")
    assert up.json("acl", "remove", "kept", "Topic:orders")["removed"] is True
    assert up.json("user", "delete", "kept", "--yes") == {"user": "kept", "deleted": True}


def test_programs_sign_in_by_an_argument(up: Up, tmp_path: Path) -> None:
    created(up, "program", tmp_path)
    file = KeyPair.parse((tmp_path / "program.credentials").read_text())
    up.run("topic", "create", "signed")
    up.run("acl", "add", "program", "Topic:signed", "Pub,Sub")
    up.run("acl", "add", "program", "Group:signed-readers", "Sub")
    credentials = user_credentials(file.access_key, file.secret_key.decode())
    nameserver = up.document()["nameserver"]
    with BlockingProducer(nameserver, credentials=credentials) as producer:
        producer.send(Message("signed", b"by a program"))

    async def read() -> bytes:
        consumer = PullConsumer(
            "signed-readers",
            nameservers=nameserver,
            start_from=StartFrom.FIRST,
            credentials=credentials,
        )
        consumer.subscribe("signed")
        batch: list[ReceivedMessage] = []
        async with consumer, asyncio.timeout(PATIENCE_S):
            while not batch:
                batch = await consumer.poll()
        return batch[0].body

    assert asyncio.run(read()) == b"by a program"
    stranger = user_credentials(file.access_key, "another secret")
    with pytest.raises(Unauthenticated), BlockingProducer(nameserver, credentials=stranger) as one:
        one.send(Message("signed", b"by a stranger"))


def test_without_or_with_wrong_credentials_nothing_is_done(up: Up, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("access_key = shop\nsecret_key = this-is-not-the-secret\n")
    other = tmp_path / "other-cluster"
    other.write_text("0" * 64 + "\n")
    before = dict(up.environment)
    try:
        for environment, said in (
            ({}, "does not say who makes it"),
            ({"AEROBEE_CREDENTIALS_FILE": str(wrong)}, "not that of an enabled user"),
            ({"AEROBEE_CLUSTER_SECRET_FILE": str(other)}, "another cluster secret"),
        ):
            up.environment = dict(environment)
            assert said in up.run("topic", "list", expect=range(1, 5)).stderr
    finally:
        up.environment = before


def test_secrets_rotate_with_two_valid_at_once(up: Up, tmp_path: Path) -> None:
    old = created(up, "rotating", tmp_path, "--super")
    file = tmp_path / "new.credentials"
    # Through a pod without a shell, where no file can be fetched from.
    done = up.run("user", "rotate", "rotating", "--credentials-file", "-")
    assert "rotating has a new secret" in done.stderr
    file.write_text(done.stdout)
    new = AsUser(up, str(file))
    for each in (old, new):
        with each:
            up.run("topic", "list")
    assert up.json("user", "rotate", "rotating", "--finish")["secrets"] == 1
    with new:
        up.run("topic", "list")
    with old:
        up.run("topic", "list", expect=range(1, 5))


def test_no_secret_is_in_a_log_or_on_a_command_line(up: Up, tmp_path: Path) -> None:
    created(up, "logged", tmp_path)
    secret = (tmp_path / "logged.credentials").read_text().split()[-1]
    cluster = (up.data / "access" / "cluster-secret").read_text().strip()
    logs = [path.read_text(errors="replace") for path in (up.data / "logs").iterdir()]
    commands = [
        Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace") for pid in up.pids()
    ]
    assert any("user created" in text for text in logs)
    assert any(
        "administrative call" in line and "operator:command" in line and "CreateUser" in line
        for text in logs
        for line in text.splitlines()
    )
    up.run("topic", "create", "logged")
    said = (up.data / "logs" / "nameserver.log").read_text()
    assert any("Create on Topic:logged" in line for line in said.splitlines())
    for text in (*logs, *commands, up.said()):
        assert secret not in text
        assert cluster not in text
    assert os.stat(up.data / "access" / "cluster-secret").st_mode & 0o077 == 0


@pytest.mark.thorough
def test_the_cluster_secret_is_exchanged_while_all_goes_on(up: Up, tmp_path: Path) -> None:
    user = created(up, "lasting", tmp_path, "--super")
    file = up.data / "access" / "cluster-secret"
    former, new = file.read_text().strip(), "e" * 64
    pids = up.pids()
    by_new = tmp_path / "new-secret"
    by_new.write_text(new)

    def lists(environment: dict[str, str]) -> bool:
        before, up.environment = up.environment, environment
        try:
            return up.run("topic", "list", expect=range(5)).returncode == 0
        finally:
            up.environment = before

    operator = {"AEROBEE_CLUSTER_SECRET_FILE": str(by_new)}
    assert not lists(operator)
    file.write_text(f"{former}\n{new}\n")
    wait_until(lambda: lists(operator), "the second secret to be taken")
    file.write_text(f"{new}\n{former}\n")
    time.sleep(1.5)  # until all nodes use it
    up.run("user", "reseal")
    file.write_text(f"{new}\n")
    by_new.write_text(former)
    wait_until(lambda: not lists(operator), "the former secret to be refused")
    time.sleep(1.5)  # until a node that does not know the user's secret would have noticed
    with user:
        up.run("topic", "create", "after")
        sent(up, "after", numbers(5))
        assert len(received(up, "after", "g", 5)) == 5
        replicas = up.json("cluster", "show")["brokers"]
    assert len(replicas) == 2
    assert up.pids() == pids
