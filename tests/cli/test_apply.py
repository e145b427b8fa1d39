"""`aerobee apply` against a running cluster with access control: once, again, and after drift."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_up import Up, received, running, sent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DECLARED: dict[str, Any] = {
    "topics": [
        {"name": "orders", "queues": 4, "type": "FIFO", "ordered": True},
        {"name": "parcels", "attributes": {"keep_unread_max_bytes": 1_000_000}},
    ],
    "groups": [
        {"name": "billing", "retriesMax": 5, "backOff": "exponential", "initial": "1s"},
        {"name": "plain", "retriesMax": 16},
    ],
    "quotas": [{"user": "shop", "limits": {"send_bytes": 1_000_000, "connections": "none"}}],
    "policies": [
        {"user": "shop", "resource": "Topic:orders*", "actions": ["Sub", "Pub"]},
        {"user": "shop", "resource": "*", "actions": "All", "decision": "Deny"},
    ],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--brokers", "2", "--access") as up:
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access/cluster-secret")
        yield up


def applied(up: Up, document: object, *flags: str, expect: int = 0) -> tuple[str, str]:
    """Standard output and error of applying it."""
    done = up.run("apply", "-f", "-", *flags, given=json.dumps(document), expect=expect)
    return done.stdout, done.stderr


def topics(up: Up) -> dict[str, dict[str, Any]]:
    return {each["topic"]: each for each in up.json("topic", "list")}


@pytest.mark.thorough
def test_what_is_declared_comes_once_and_drift_is_found_and_undone(
    cluster: Up, tmp_path: Path
) -> None:
    # Rights and limits of a user whom nobody has made: all is refused, and nothing done.
    said, error = applied(cluster, DECLARED, "--yes", expect=4)
    assert "cannot change policy shop *: there is no user shop" in said
    assert "3 changes cannot be made, and nothing was changed" in error
    cluster.run("user", "create", "shop", "--credentials-file", str(tmp_path / "shop"))

    said, _ = applied(cluster, DECLARED, "--dry-run", expect=1)
    assert said.splitlines()[-1] == ("plan: 5 to create, 1 to change, 0 to delete, 1 unchanged")
    _, error = applied(cluster, DECLARED, expect=2)
    assert "give --yes to confirm" in error
    assert topics(cluster) == {}

    said, _ = applied(cluster, DECLARED, "--yes")
    assert said.splitlines()[-1] == "made 6 changes"
    orders = topics(cluster)["orders"]
    assert (orders["queues"], orders["ordered"]) == (4, True)
    assert orders["attributes"] == {"message.type": "FIFO"}
    assert topics(cluster)["parcels"]["attributes"] == {"keep_unread_max_bytes": "1000000"}
    retries = cluster.json("group", "show", "billing")["retry"]
    assert set(retries) == {"broker-a", "broker-b"}
    for each in retries.values():
        assert (each["retriesMax"], each["initialMs"], each["longestMs"]) == (5, 1_000, 7_200_000)
    (quota,) = (each for each in cluster.json("quota", "list") if each["name"] == "shop")
    assert quota["limits"] == {"connections": 0, "send_bytes": 1_000_000}
    assert len(cluster.json("acl", "list", "shop")) == 2

    for flags in (("--yes",), ("--dry-run",), ()):
        said, _ = applied(cluster, DECLARED, *flags)
        assert said == "plan: 0 to create, 0 to change, 0 to delete, 7 unchanged\n"

    cluster.run("topic", "update", "orders", "--permission", "r", "--queues", "6")
    cluster.run("group", "configure", "billing", "--retries-max", "9")
    cluster.run("quota", "set", "user", "shop", "read_bytes=5", "send_bytes=7")
    cluster.run("acl", "add", "shop", "Topic:orders*", "Pub", "--source", "10.0.0.1")
    wished = {**DECLARED, "topics": [{"name": "orders", "queues": 8, "permission": "rw"}]}
    out, _ = applied(cluster, wished, "--dry-run", "--json", expect=1)
    assert [(each["kind"], each["changes"]) for each in json.loads(out)["steps"]] == [
        ("topic", [_change("queues", 6, 8), _change("permission", "r", "rw")]),
        ("group", [_change("retriesMax", 9, 5)]),
        ("quota", [_change("send_bytes", 7, 1_000_000), _change("read_bytes", 5, None)]),
        (
            "policy",
            [_change("actions", "Pub", "Pub,Sub"), _change("sources", "10.0.0.1/32", None)],
        ),
    ]
    out, _ = applied(cluster, wished, "--yes", "--json")
    assert (json.loads(out)["done"], json.loads(out)["failed"]) == (4, None)
    applied(cluster, wished, "--dry-run")


def _change(field: str, before: object, after: object) -> dict[str, object]:
    return {"field": field, "from": before, "to": after}


def test_a_wish_that_cannot_be_fulfilled_changes_nothing(cluster: Up) -> None:
    cluster.run("topic", "create", "wide", "--queues", "4", "--if-missing")
    wished = {"topics": [{"name": "new"}, {"name": "wide", "type": "FIFO"}]}
    for flag in ("--yes", "--dry-run"):
        said, error = applied(cluster, wished, flag, expect=4)
        assert "cannot change topic wide: its type is NORMAL, not FIFO" in said
        assert error.endswith("1 change cannot be made, and nothing was changed\n")
    assert "new" not in topics(cluster)
    _, error = applied(cluster, {"topics": [{"name": "new", "queus": 1}]}, "--yes", expect=2)
    assert "-:1: error: unknown key 'queus' of a topic; did you mean 'queues'?" in error
    assert "new" not in topics(cluster)


def test_queues_that_were_added_by_hand_are_told_and_the_rest_is_applied(cluster: Up) -> None:
    cluster.run("topic", "create", "grown", "--queues", "4", "--if-missing")
    wished = {"topics": [{"name": "grown", "queues": 2}, {"name": "beside", "queues": 1}]}
    applied(cluster, wished, "--dry-run", expect=1)
    said, _ = applied(cluster, wished, "--yes")
    assert "differs topic grown: it has 4 queues, and the file says 2" in said
    assert topics(cluster)["beside"]["queues"] == 1
    out, _ = applied(cluster, wished, "--yes", "--json")
    assert [each["name"] for each in json.loads(out)["drift"]] == ["grown"]
    # A file that is not what there is does not pass for it.
    applied(cluster, wished, "--dry-run", expect=1)


def test_a_failure_on_the_way_says_what_was_done_and_what_not(cluster: Up) -> None:
    """Only the nameserver knows how long attributes may be."""
    wished = {
        "topics": [
            {"name": "one"},
            {"name": "two", "attributes": {"owner": "x" * 2_000}},
            {"name": "zero"},
        ]
    }
    out, error = applied(cluster, wished, "--yes", "--json", expect=4)
    assert "1 change made, 2 not: create topic two, create topic zero;" in error
    assert (json.loads(out)["done"], len(json.loads(out)["steps"])) == (1, 3)
    assert "one" in topics(cluster)
    assert not {"two", "zero"} & topics(cluster).keys()


def test_a_prune_keeps_what_is_unread_unless_it_is_told_otherwise(cluster: Up) -> None:
    cluster.run("topic", "create", "read", "unread")
    sent(cluster, "read", ["a", "b"])
    received(cluster, "read", "readers", 2)
    sent(cluster, "unread", ["a", "b", "c"])
    kept = [each for each in topics(cluster) if each not in ("read", "unread")]
    wished = {"topics": [{"name": name} for name in kept]}
    said, _ = applied(cluster, wished, "--prune", "--yes", expect=4)
    assert "delete topic read\n" in said
    assert "cannot change topic unread: it has 3 unread messages" in said
    assert {"read", "unread"} <= topics(cluster).keys()
    applied(cluster, wished, "--dry-run")
    wished["topics"].append({"name": "unread"})
    said, _ = applied(cluster, wished, "--prune", "--yes")
    assert said.splitlines()[-2:] == ["deleted topic read", "made 1 change"]
    wished["topics"].pop()
    applied(cluster, wished, "--prune", "--delete-unread", "--yes")
    assert topics(cluster).keys() == set(kept)


@pytest.mark.thorough
def test_what_is_exported_is_applied_without_a_change(cluster: Up, tmp_path: Path) -> None:
    cluster.run("user", "create", "export", "--credentials-file", str(tmp_path / "export"))
    declared = {
        "topics": [{"name": "yes", "type": "DELAY", "attributes": {"keep_unread_max_bytes": 7}}],
        "groups": [
            {"name": "0123", "retriesMax": 5, "backOff": "exponential", "initial": "1s"},
            {"name": "plain-export", "retriesMax": 3, "ordered": True},
        ],
        "quotas": [
            {"user": "export", "limits": {"send_bytes": 1_000_000, "connections": "none"}},
            {"default": True, "limits": {"send_bytes": 2_000_000}},
        ],
        "policies": [
            {"user": "export", "resource": "Topic:o*", "actions": "Sub", "sources": "10.0.0.0/8"},
            {"user": "export", "resource": "*", "actions": "All", "decision": "Deny"},
        ],
    }
    applied(cluster, declared, "--yes")
    exported = cluster.run("apply", "--export")
    assert exported.stderr == ""
    for name in ("yes", "0123", "send_bytes", "10.0.0.0/8"):
        assert name in exported.stdout
    for text in (exported.stdout, json.dumps(cluster.json("apply", "--export"))):
        said = cluster.run("apply", "-f", "-", "--dry-run", "--prune", given=text).stdout
        assert "plan: 0 to create, 0 to change, 0 to delete" in said
