"""A master is killed under Apache's remoting clients."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.rocketmq_api.official.clients import Client
from tests.rocketmq_remoting.official.scene import PATIENCE_S, Scene, bodies, pushed
from tests.rpc.core.interop.programs import Program
from tests.support.forwarder import forwarding
from tests.support.local_up import Up, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

BEFORE, AFTER = 100, 60
ATTEMPTS_MAX = 5
DUPLICATES_MAX = 50


def master_of(up: Up) -> str | None:
    replicas = up.json("cluster", "show")["brokers"]
    return next((each["address"] for each in replicas if each["role"] == "master"), None)


def kill_master(up: Up) -> None:
    master = master_of(up)
    (pid,) = [each["pid"] for each in up.document()["brokers"] if each["address"] == master]
    os.kill(pid, signal.SIGKILL)


def make_another_master(up: Up, former: str) -> str:
    """Kills it, again if it is back before another is elected: `up` then waits longer each time.
    Returns the other's address."""

    def other() -> str:
        master = master_of(up)
        if master == former:
            with suppress(ProcessLookupError):
                kill_master(up)
        return master if master and master != former else ""

    return str(wait_until(other, "another master"))


def stored(scene: Scene, producer: Client, body: str) -> str:
    """Repeats the send until it succeeds."""
    ends_s = time.monotonic() + PATIENCE_S
    while True:
        answer = producer.ask("send", topic=scene.topic, body=body, group="one")
        if answer.get("status") == "SEND_OK":
            return body
        assert time.monotonic() < ends_s, answer


@pytest.mark.parametrize("role", ["push", "orderly"])
def test_nothing_is_lost_and_little_comes_twice(
    program: Program, tmp_path: Path, role: str
) -> None:
    with running(tmp_path, "--replicas", "2") as up:
        scene = Scene(program, up, tmp_path)
        scene.begin(f"failover-{role}")
        with scene.consumer(role) as consumer, scene.producer() as producer:
            sent = [stored(scene, producer, str(number)) for number in range(BEFORE)]
            found = bodies(pushed(consumer, BEFORE // 2))
            kill_master(up)
            sent += [stored(scene, producer, f"later-{number}") for number in range(AFTER)]
            while not set(found) >= set(sent):
                found += bodies(pushed(consumer, 1))
            # The consumer says it goes on by itself: what follows comes, too.
            stored(scene, producer, "last")
            while found[-1] != "last":
                found += bodies(pushed(consumer, 1))
    again = sum(count - 1 for count in Counter(found).values())
    assert again < DUPLICATES_MAX
    if role == "orderly":
        first_times = [body for body in dict.fromkeys(found) if body in set(sent)]
        assert first_times == sent


def test_a_message_id_leads_to_its_broker_group_after_a_failover(
    program: Program, tmp_path: Path
) -> None:
    """If the group has an address of its own, which its replicas stamp into records."""
    with (
        forwarding() as group,
        running(tmp_path, "--replicas", "2", "--broker-set", f"store_host={group.address}") as up,
    ):
        scene = Scene(program, up, tmp_path)
        scene.begin("ids")
        group.target = former = master_of(up) or ""
        with scene.producer() as producer:
            (sent,) = scene.send(producer, "before")
            group.target = make_another_master(up, former)
            # The client's connection to the group's address has ended with the former master.
            found = [producer.ask("view", topic=scene.topic, id=sent["offset_id"])]
            while "error" in found[-1] and len(found) < ATTEMPTS_MAX:
                found.append(producer.ask("view", topic=scene.topic, id=sent["offset_id"]))
    assert found[-1]["body"] == "before", found
