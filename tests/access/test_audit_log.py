"""The audit log of real nodes: what was done and refused, by whom, and nothing that is secret."""

from __future__ import annotations

import json
import re
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.access.credentials import CLUSTER_SECRET_VARIABLE, KeyPair
from aerobee.access.signature import sign
from aerobee.v1 import broker_pb2
from apache.rocketmq.v2 import definition_pb2, service_pb2
from tests.access.test_cluster import created
from tests.support.local_up import Up, numbers, received, running, sent
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

V2_ROUTE = "/apache.rocketmq.v2.MessagingService/QueryRoute"
PULL = "/aerobee.v1.PullService/PullStream"
SWAPPED = "a-secret-in-the-field-of-the-access-key"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--access") as up:
        up.environment[CLUSTER_SECRET_VARIABLE] = str(up.data / "access" / "cluster-secret")
        yield up


def log_of(up: Up, node: str) -> Path:
    return up.data / "audit-log" / f"{node}.log"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def found(path: Path, **wanted: str) -> list[dict[str, Any]]:
    """Lines with these members; the method by its name alone."""
    return [
        line
        for line in lines(path)
        if all(str(line.get(name, "")).endswith(text) for name, text in wanted.items())
    ]


def refusal_of(address: str, path: str, request: Any, metadata: Any) -> Any:
    """The first answer, or the status that came instead."""
    with grpc.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(
            path, request_serializer=lambda message: message.SerializeToString()
        )
        try:
            return next(iter(call(iter((request,)), metadata=metadata, timeout=30)), None)
        except grpc.RpcError as error:
            return error.code()


def test_acts_and_refusals_of_both_protocols_are_lines_and_secrets_are_not(
    up: Up, tmp_path: Path
) -> None:
    nameserver, broker = log_of(up, "nameserver"), log_of(up, "broker-a")
    up.run("topic", "create", "orders")
    shop = created(up, "shop", tmp_path)
    created(up, "boss", tmp_path, "--super")
    up.run("acl", "add", "shop", "Topic:orders", "Pub,Sub")
    up.run("acl", "add", "shop", "Group:readers", "Sub")
    with shop:
        sent(up, "orders", numbers(5))
        received(up, "orders", "readers", 5)
        up.run("topic", "delete", "orders", "--yes", expect=range(1, 5))
        up.run("group", "configure", "readers", "--retries-max", "3", expect=range(1, 5))
    up.run("group", "configure", "readers", "--retries-max", "3")
    up.run("group", "delete", "readers", "--yes")
    up.run("topic", "create", "orders", expect=range(1, 5))

    (topic, again) = found(nameserver, event="act", method="/CreateTopic")
    assert (topic["caller"].split(":")[0], topic["result"]) == ("operator", "ok")
    assert topic["needs"] == ["Create on Topic:orders"]
    assert topic["from"].startswith("127.0.0.1:")
    assert topic["request_id"]
    assert topic["tls"] is False
    assert again["result"] == "topic_exists"
    user, _ = found(nameserver, event="act", method="/CreateUser")
    assert user["request"]["name"] == "shop"
    policy, _ = found(nameserver, event="act", method="/PutPolicy")
    assert policy["request"]["policy"]["resource"] == "Topic:orders"
    (refused,) = found(nameserver, event="refusal", method="/DeleteTopic")
    assert (refused["caller"], refused["result"]) == ("user shop", "access_denied")
    assert refused["needs"] == ["Delete on Topic:orders"]
    assert "no policy allows it" in refused["why"]
    (registered,) = found(nameserver, event="act", method="/Register")
    assert (registered["caller"], registered["result"]) == ("broker:aerobee/broker-a/0", "begun")
    (configured,) = found(broker, event="act", method="/ConfigureGroup")
    assert configured["needs"] == ["Update on Group:readers"]
    assert configured["request"]["retry"]["retries_max"] == 3
    assert found(nameserver, event="refusal", method="/DescribeCluster", caller="user shop")
    assert found(broker, event="act", method="/DeleteGroup", result="ok")
    # What clients do with messages is none of its business.
    assert {line["method"].split("/")[2] for line in found(broker, event="act")} == {
        "ConfigureGroup",
        "DeleteGroup",
    }

    pair = KeyPair.parse((tmp_path / "shop.credentials").read_text())
    client = (("x-mq-client-id", "c"), ("x-mq-request-id", "0b6c2f1e-aaaa"))
    asked = service_pb2.QueryRouteRequest(topic=definition_pb2.Resource(name="hidden"))
    pulls = broker_pb2.PullCommand()
    pulls.subscribe.request.topic = "hidden"
    address = up.document()["brokers"][0]["address"]
    for secret in (pair.secret_key, b"wrong"):
        signed = (*client, *sign("shop", secret, "20240101T000000Z"))
        refusal_of(address, V2_ROUTE, asked, signed)
        refusal_of(address, PULL, pulls, signed)
    refusal_of(address, V2_ROUTE, asked, (*client, *sign(SWAPPED, b"shop", "20240101T000000Z")))
    refusal_of(address, PULL, pulls, client)

    def all_are_told() -> bool:
        return len(found(broker, event="refusal", request_id="0b6c2f1e-aaaa")) == 6

    wait_until(all_are_told, "the refusals' lines")
    routes = found(broker, event="refusal", method="/QueryRoute")
    assert [(each["caller"], each["result"]) for each in routes] == [
        ("user shop", "access_denied"),
        ("anonymous", "unauthenticated"),
        ("anonymous", "unauthenticated"),
    ]
    assert "enabled user 'shop'" in routes[1]["why"]
    streams = found(broker, event="refusal", method="/PullStream")
    assert [each["result"] for each in streams] == [
        "access_denied",
        "unauthenticated",
        "unauthenticated",
    ]
    assert streams[0]["needs"] == ["Sub on Topic:hidden"]

    files = [KeyPair.parse(each.read_text()) for each in tmp_path.glob("*.credentials")]
    cluster = (up.data / "access" / "cluster-secret").read_text()
    secrets = [SWAPPED, *cluster.split(), *(each.secret_key.decode() for each in files)]
    assert len(secrets) == 4
    for path in (nameserver, broker):
        text = path.read_text()
        assert [secret for secret in secrets if secret in text] == []
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.thorough
def test_commands_check_and_show_it(up: Up, tmp_path: Path) -> None:
    path = log_of(up, "nameserver")
    key_file = str(up.data / "access" / "cluster-secret")
    up.run("topic", "create", "checked")
    told = up.data / "logs" / "nameserver.log"
    pattern = re.compile(r"place=(\d+:[0-9a-f]{64})")
    sequence = lines(path)[-1]["seq"]

    def last_told() -> int:
        return max(int(each.partition(":")[0]) for each in pattern.findall(told.read_text()))

    wait_until(lambda: last_told() >= sequence, "the place in the ordinary log")
    place = pattern.findall(told.read_text())[-1]
    intact = up.run("audit-log", "verify", str(path), "--key-file", key_file, "--expect", place)
    assert intact.stdout.startswith("intact: lines 1 to ")
    assert " of nameserver:127.0.0.1:" in intact.stdout
    assert intact.stderr == ""
    shown = up.run("audit-log", "show", str(path), "--on", "checked").stdout
    assert re.fullmatch(
        r"\S+Z \d+ act ok operator:\S+ from 127\.0\.0\.1:\d+ CreateTopic .*checked.*\n", shown
    )

    copy = tmp_path / "copy.log"
    data = path.read_bytes().splitlines(keepends=True)
    other = tmp_path / "other"
    other.write_text("0" * 64)
    for what, arguments, said in (
        (data[:-1], ("--expect", place), "lines were cut off"),
        ([data[0], *data[2:]], (), "line 2: lines 2 to 2 are missing before it"),
        ([data[0].replace(b"started", b"stopped"), *data[1:]], (), "line 1: it was changed"),
        (data, ("--key-file", str(other)), "was not given"),
        ([], (), "the file is empty"),
        ([*data[:-1], data[-1][:-30]], (), "the line has no end: it was cut off"),
    ):
        copy.write_bytes(b"".join(what))
        done = up.run("audit-log", "verify", str(copy), *arguments, expect=1)
        assert said in done.stdout.splitlines()[0], done.stdout
        assert done.stdout.splitlines()[-1].startswith("broken: ")
    (verdict,) = up.json("audit-log", "verify", str(path))
    assert (verdict["intact"], verdict["firstSequence"]) == (True, 1)
    copy.write_bytes(b"".join(data))
    (verdict,) = up.json("audit-log", "verify", str(copy), "--key-file", str(other), expect=1)
    assert (verdict["intact"], verdict["findings"][0]["file"]) == (False, str(copy))
    assert (
        "not SEQUENCE:HASH"
        in up.run("audit-log", "verify", str(path), "--expect", "17", expect=2).stderr
    )


def test_the_last_lines_of_all_nodes_need_a_right_of_their_own(up: Up, tmp_path: Path) -> None:
    up.run("topic", "create", "nectar")
    up.run("group", "configure", "tasters", "--retries-max", "2")
    looker = created(up, "looker", tmp_path)
    for resource_ in ("Cluster:*", "Topic:*", "Group:*"):
        up.run("acl", "add", "looker", resource_, "All")

    def tried() -> subprocess.CompletedProcess[str]:
        with looker:
            return up.run("audit-log", "last", "--lines", "500", "--json", expect=range(5))

    wait_until(lambda: "Get on AuditLog:aerobee" in tried().stderr, "the other rights")
    up.run("acl", "add", "looker", "AuditLog:*", "Get")
    wait_until(lambda: tried().returncode == 0, "the right")
    document = json.loads(tried().stdout)
    assert (document["unanswered"], document["withoutLog"], document["more"]) == ({}, [], False)
    times = [line["time"] for line in document["lines"]]
    assert times == sorted(times, reverse=True)
    kinds = {line["node"].partition(":")[0] for line in document["lines"]}
    assert kinds == {"broker", "nameserver"}
    files = (up.data / "audit-log").glob("*.log")
    assert len(times) == sum(len(lines(path)) for path in files)
    (one,) = up.json("audit-log", "last", "--on", "nectar", "--method", "Create")["lines"]
    assert one["request"]["name"] == "nectar"
    refusals = up.json("audit-log", "last", "--caller", "looker", "--refused")["lines"]
    assert {line["method"].rpartition("/")[2] for line in refusals} >= {"ReadAuditLog"}
    assert up.json("audit-log", "last", "--since", "2099-01-01T00:00Z")["lines"] == []
    up.run("acl", "add", "looker", "Topic:secret", "All", "--deny")
    wait_until(lambda: tried().returncode != 0, "the denial")


def test_without_access_control_acts_are_lines_and_a_strict_log_stops_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nameserver.log"
    monkeypatch.setenv("AEROBEE_NAMESERVER_AUDIT_LOG_FILE", str(path))
    monkeypatch.setenv("AEROBEE_NAMESERVER_AUDIT_LOG_ON_FAILURE", "refuse")
    with running(tmp_path) as up:
        up.run("topic", "create", "first")
        assert [
            (each["caller"], each["result"]) for each in found(path, method="/CreateTopic")
        ] == [
            ("anonymous", "begun"),
            ("anonymous", "ok"),
        ]
        pid = up.document()["pids"]["nameserver"]
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        size = path.stat().st_size
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))
        refused = up.run("topic", "create", "second", expect=range(1, 5))
        assert "nothing was done, because this node's audit log cannot be written" in refused.stderr
        assert path.stat().st_size == size
        assert "second" not in up.run("topic", "list").stdout
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        up.run("topic", "create", "second")
        assert found(path, event="lost")
        done = up.run("audit-log", "verify", str(path))
        assert "its node has no cluster secret" in done.stderr
