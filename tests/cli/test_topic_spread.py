"""`aerobee topic spread` against a running `aerobee up` of two broker groups."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.local_up import Up, numbers, received, running, sent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--brokers", "2") as up:
        yield up


def test_a_topic_spreads_over_broker_groups_and_leaves_one(cluster: Up) -> None:
    cluster.run("topic", "create", "spreading", "--queues", "1")
    [before] = [
        each
        for each in json.loads(cluster.run("topic", "list", "--json").stdout)
        if each["topic"] == "spreading"
    ]
    [first] = before["queuesByBroker"]
    [second] = {"broker-a", "broker-b"} - {first}
    planned = cluster.run("topic", "spread", "spreading", "--preview").stdout
    assert f"1 on {first}" in planned
    assert f"1 on {second}" in planned
    cluster.run("topic", "spread", "spreading", "--yes")
    assert "nothing to spread" in cluster.run("topic", "spread", "spreading", "--yes").stdout

    sent(cluster, "spreading", numbers(4))
    done = cluster.run("topic", "spread", "spreading", "--retire", first, "--yes", expect=1)
    assert "takes messages for another" in done.stdout
    shown = cluster.run("topic", "show", "spreading")
    assert f"retired from {first}" in shown.stderr
    # What is sent from now on goes elsewhere, and everything is read.
    sent(cluster, "spreading", numbers(4, 4), "--key", "k")
    assert sorted(received(cluster, "spreading", "spread-readers", 8)) == numbers(8)
    done = cluster.run("topic", "spread", "spreading", "--retire", "absent", expect=2)
    assert "has no queues on absent" in done.stderr
