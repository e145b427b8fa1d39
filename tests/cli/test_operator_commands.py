"""The commands of operators against a running `aerobee up`: topics, groups, offsets, what waits."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aerobee.consumer_client import PushConsumer
from aerobee.producer_client import Message, Producer
from aerobee.store.format.recall_handle import RecallHandle
from tests.support.local_up import (
    AEROBEE,
    PATIENCE_S,
    Up,
    numbers,
    received,
    sent,
)
from tests.support.waiting import until, wait_until

pytestmark = pytest.mark.slow


def test_what_waits_is_listed_recalled_delivered_and_moved(cluster: Up) -> None:
    def waiting(*arguments: str) -> list[str]:
        shown = cluster.run("schedule", "list", "waits", "--handles", *arguments)
        return shown.stdout.splitlines()

    sent = [
        cluster.run(
            "produce", "waits", "--delay", f"{hours}h", "--key", f"k{hours}", given=f"{hours}\n"
        ).stdout.splitlines()[0]
        for hours in (1, 2, 3)
    ]
    # Those in the list also name the message's content.
    listed = [replace(RecallHandle.decode(handle), content="") for handle in waiting()]
    assert listed == [RecallHandle.decode(handle) for handle in sent]
    handles = [sent[0], *waiting()[1:]]
    assert waiting("--key", "k2") == handles[1:2]
    assert len(waiting("--max", "1")) == 1
    (row,) = cluster.json("schedule", "list", "waits", "--key", "k3")["messages"]
    assert (row["recallHandle"], row["topic"], row["keys"]) == (handles[2], "waits", ["k3"])
    assert "k1" in cluster.run("schedule", "list", "waits", "--wide").stdout

    refused = cluster.run("schedule", "recall", handles[0], expect=2)
    assert "--yes" in refused.stderr
    cluster.run("schedule", "recall", handles[0], "--yes")
    gone = cluster.json("schedule", "recall", handles[0], handles[1], "--yes", expect=1)
    assert [each["recalled"] for each in gone] == [False, True]
    assert "error" in gone[0]
    moved = cluster.run("schedule", "move", handles[2], "--delay", "5h").stdout.strip()
    assert waiting() == [moved]
    cluster.run("schedule", "deliver-now", moved, "--yes")
    assert received(cluster, "waits", "g", 1) == ["3"]
    none = cluster.run("schedule", "list", "waits")
    assert (none.stdout, "no matching message waits" in none.stderr) == ("", True)
    assert cluster.json("schedule", "list", "waits")["messages"] == []
    nonsense = cluster.run("schedule", "move", "nonsense", "--delay", "1s", expect=2)
    assert "no recall handle" in nonsense.stderr


def test_open_transactions_are_listed_shown_and_ended(cluster: Up) -> None:
    async def begin() -> list[str]:
        async with Producer(cluster.document()["nameserver"]) as producer:
            messages = [Message("open", b"%d" % number, keys=["k"]) for number in range(3)]
            return [(await producer.begin(each)).transaction_id for each in messages]

    ids = asyncio.run(begin())

    def open_ids(*arguments: str) -> list[str]:
        shown = cluster.run("transaction", "list", "open", "--ids", *arguments)
        return shown.stdout.splitlines()

    assert open_ids() == ids
    assert open_ids("--max", "1") == ids[:1]
    assert open_ids("--until", "2020-01-01T00:00") == []
    assert open_ids("--set-aside") == []
    first = cluster.json("transaction", "list", "open")["transactions"][0]
    assert (first["transactionId"], first["topic"], first["checks"]) == (ids[0], "open", 0)
    assert ids[0] in cluster.run("transaction", "list", "open", "--wide").stdout
    shown = json.loads(cluster.run("transaction", "show", "open", ids[1]).stdout)
    assert (shown["transactionId"], shown["message"]["keys"]) == (ids[1], ["k"])
    cluster.run("transaction", "show", "open", "nonsense", expect=1)

    refused = cluster.run("transaction", "commit", "open", ids[0], expect=2)
    assert "--yes" in refused.stderr
    (done,) = cluster.json("transaction", "commit", "open", ids[0], "--yes")
    assert done == {"transactionId": ids[0], "committed": True, "topic": "open"}
    cluster.run("transaction", "rollback", "open", ids[1], "--yes")
    mixed = cluster.run("transaction", "rollback", "open", *ids, "--yes", expect=1)
    assert "rolled back 2 transactions" in mixed.stdout
    assert "was committed before" in mixed.stderr
    unknown = cluster.run("transaction", "commit", "open", "nonsense", "--yes", expect=1)
    assert "no broker has transaction" in unknown.stderr
    none = cluster.run("transaction", "list", "open")
    assert (none.stdout, "no matching transaction" in none.stderr) == ("", True)
    # From here on its brokers know the group.
    assert received(cluster, "open", "g", 1) == ["0"]
    none = cluster.run("dead-letter", "list", "g")
    assert (none.stdout, "group g has no matching dead letter" in none.stderr) == ("", True)
    assert cluster.json("dead-letter", "list", "g")["letters"] == []
    cluster.run("dead-letter", "show", "g", "0A000001", expect=1)


def test_topics_are_created_shown_changed_and_deleted(cluster: Up) -> None:
    cluster.run("topic", "create", "life", "--queues", "3", "--attribute", "message.type=FIFO")
    assert "already" in cluster.run("topic", "create", "life", "--if-missing").stdout
    shown = cluster.json("topic", "show", "life")
    assert len(shown["queues"]) == 3
    assert shown["attributes"] == {"message.type": "FIFO"}
    cluster.run("topic", "update", "life", "--queues", "5")
    listed = {topic["topic"]: topic for topic in cluster.json("topic", "list")}
    assert listed["life"]["queues"] == 5
    cluster.run("topic", "delete", "life", "--yes")
    assert "life" not in {topic["topic"] for topic in cluster.json("topic", "list")}


def test_a_topic_says_how_long_it_keeps_its_messages(cluster: Up) -> None:
    def attributes() -> Any:
        return cluster.json("topic", "show", "brief")["attributes"]

    cluster.run("topic", "create", "brief", "--keep", "6h", "--keep-bytes", "1GiB")
    assert attributes() == {"keep_ms": "21600000", "keep_bytes": "1073741824"}
    cluster.run("topic", "update", "brief", "--keep", "30m")
    cluster.run("topic", "update", "brief", "--keep-bytes", "all")
    assert attributes() == {"keep_ms": "1800000"}
    differing = ("--keep", "1h", "--attribute", "keep_ms=1000")
    both = cluster.run("topic", "update", "brief", *differing, expect=2)
    assert "--keep and --attribute keep_ms differ" in both.stderr
    odd = cluster.run("topic", "update", "brief", "--keep-bytes", "1GB", expect=2)
    assert "'1GB' is no size" in odd.stderr
    cluster.run("topic", "delete", "brief", "--yes")


def test_several_topics_are_created_with_one_type(cluster: Up) -> None:
    cluster.run("topic", "create", "invoices", "--queues", "1", "--type", "fifo")
    done = cluster.run("topic", "create", "invoices", "receipts", "--type", "FIFO", "--if-missing")
    assert [line.split()[:3] for line in done.stdout.splitlines()] == [
        ["topic", "invoices", "already"],
        ["created", "topic", "receipts"],
    ]
    for topic in ("invoices", "receipts"):
        assert cluster.json("topic", "show", topic)["attributes"] == {"message.type": "FIFO"}


def test_a_group_is_ordered_until_it_is_not(cluster: Up) -> None:
    def configured(*options: str) -> Any:
        brokers = cluster.json("group", "configure", "in-order", *options)["retry"].values()
        (settings,) = {(each["ordered"], each["retriesMax"]) for each in brokers}
        return settings

    assert configured("--ordered", "--retries-max", "3") == (True, 3)
    assert configured("--retries-max", "4") == (True, 4)
    assert configured("--unordered") == (False, 4)


def test_topics_of_brokers_are_listed_when_asked_for(cluster: Up) -> None:
    cluster.run("topic", "create", "listed", "--queues", "2")
    consumer = PushConsumer(
        "listing",
        lambda messages: None,
        run_in_thread=False,
        nameservers=cluster.document()["nameserver"],
    )
    consumer.subscribe("listed")

    async def all_topics() -> dict[str, Any]:
        """Once the group's retry topic is among them."""
        topics = await asyncio.to_thread(cluster.json, "topic", "list", "--all")
        named = {topic["topic"]: topic for topic in topics}
        return named if "%RETRY%listing" in named else {}

    async def until_joined() -> Any:
        await consumer.start()
        try:
            return await until(all_topics, "the group's retry topic")
        finally:
            await consumer.aclose()

    everything = asyncio.run(until_joined())
    listed = {topic["topic"]: topic for topic in cluster.json("topic", "list")}
    assert "%RETRY%listing" not in listed
    retry = everything["%RETRY%listing"]
    assert (retry["queues"], retry["permission"]) == (len(retry["queuesByBroker"]), "rw")
    assert "AEROBEE_OFFSET_JOURNAL" in everything
    assert everything["listed"] == listed["listed"], "as the nameserver has it"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        (["topic", "show", "nowhere"], 1, "nowhere"),
        (["topic", "delete", "nowhere", "--yes"], 1, "nowhere"),
        (["topic", "create", "no name"], 2, "illegal"),
        (["topic", "create", "t", "--type", "FIFO", "--attribute", "message.type=X"], 2, "differ"),
        (["produce", "nowhere", "--no-create"], 1, "nowhere"),
        (["consume", "nowhere", "--group", "g", "--count", "1"], 1, "nowhere"),
        (["consume", "nowhere", "--group", "no name", "--count", "1"], 2, "illegal"),
        (["group", "show", "nobody"], 1, "nobody"),
        (["schedule", "list", "nowhere"], 1, "nowhere"),
        (["transaction", "list", "nowhere"], 1, "nowhere"),
        (["dead-letter", "list", "nobody"], 1, "nobody"),
        (["offset", "reset", "g", "nowhere", "--to", "first", "--yes"], 1, "nowhere"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_a_negative_answer_is_one_sentence(
    cluster: Up, arguments: list[str], exit_code: int, told: str
) -> None:
    done = cluster.run(*arguments, given="line\n", expect=exit_code)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("aerobee: ")
    assert told in last
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_groups_show_their_lag_and_can_be_reset(cluster: Up) -> None:
    sent(cluster, "lagging", numbers(100))
    received(cluster, "lagging", "lagger", 60)
    group = cluster.json("group", "show", "lagger")
    assert group["lag"] == 40
    assert sum(queue["committedOffset"] or 0 for queue in group["queueList"]) == 60
    assert "lagger" in {each["group"] for each in cluster.json("group", "list")}
    cluster.run("offset", "reset", "lagger", "lagging", "--to", "last", "--dry-run")
    assert cluster.json("group", "show", "lagger")["lag"] == 40
    cluster.run("offset", "reset", "lagger", "lagging", "--to", "last", "--yes")
    assert cluster.json("group", "show", "lagger")["lag"] == 0
    cluster.run("offset", "reset", "lagger", "lagging", "--to", "1h", "--yes")
    assert cluster.json("group", "show", "lagger")["lag"] == 100
    assert len(received(cluster, "lagging", "lagger", 100)) == 100


def test_a_running_member_is_shown_and_leaves_at_sigterm(cluster: Up, tmp_path: Path) -> None:
    sent(cluster, "held", numbers(10))
    printed = tmp_path / "printed"
    words = ("consume", "held", "--group", "holders", "--client-id", "me", "--sql", "TRUE")
    with printed.open("w") as output:
        member = subprocess.Popen(
            [*AEROBEE, *words],
            env={**os.environ, "AEROBEE_NAMESERVER": cluster.document()["nameserver"]},
            stdout=output,
        )
    wishes: list[str] = []
    try:

        def holds_all() -> bool:
            done = subprocess.run(
                [*AEROBEE, "group", "show", "holders", "--json"],
                env={**os.environ, "AEROBEE_NAMESERVER": cluster.document()["nameserver"]},
                capture_output=True,
                text=True,
            )
            if done.returncode:
                return False
            shown = json.loads(done.stdout)
            wishes[:] = [each["subscriptions"]["held"] for each in shown["memberList"]]
            queues = shown["queueList"]
            return bool(queues) and {queue["leaseHolder"] for queue in queues} == {"me"}

        wait_until(holds_all, "the member holds all queues")
        wait_until(lambda: len(printed.read_text().splitlines()) == 10, "it printed all messages")
    finally:
        member.terminate()
    assert wishes == ["SQL: TRUE"]
    assert member.wait(PATIENCE_S) == 143
    group = cluster.json("group", "show", "holders")
    assert group["members"] == 0
    assert group["lag"] == 0


def test_the_cluster_shows_its_brokers(cluster: Up) -> None:
    shown = cluster.json("cluster", "show")
    assert [broker["broker"] for broker in shown["brokers"]] == ["broker-a", "broker-b"]
    assert all(broker["role"] == "master" for broker in shown["brokers"])
    assert all(broker["stats"]["writable"] for broker in shown["brokers"])


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "delete", "t"),
        ("group", "delete", "g"),
        ("offset", "delete", "g", "t"),
        ("offset", "reset", "g", "t", "--to", "last"),
        ("cluster", "remove-replica", "broker-a", "1"),
        ("cluster", "clean", "broker-a", "--unread"),
    ],
)
def test_without_a_terminal_nothing_is_deleted_unless_it_is_told_yes(
    command: tuple[str, ...],
) -> None:
    """Whatever comes over standard input is no answer. No cluster is asked."""
    done = subprocess.run(
        [*AEROBEE, *command], input="y\n", capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr


def test_a_group_and_offsets_are_deleted_and_the_group_begins_anew(cluster: Up) -> None:
    lines = numbers(30)
    sent(cluster, "forgotten", lines)
    assert sorted(received(cluster, "forgotten", "leaver", 30)) == sorted(lines)
    would = cluster.json("group", "delete", "leaver", "--dry-run")
    assert (would["changed"], would["members"]) == (False, 0)
    assert would["offsets"] > 0
    assert cluster.json("group", "show", "leaver")["queueList"]
    queue = cluster.json("offset", "delete", "leaver", "forgotten", "--dry-run")["queues"][0]
    one = ("--queue", f"{queue['broker']}:{queue['queue']}", "--yes")
    assert cluster.json("offset", "delete", "leaver", "forgotten", *one)["queues"] == [queue]
    assert cluster.json("offset", "delete", "leaver", "forgotten", *one)["queues"] == []
    done = cluster.json("group", "delete", "leaver", "--yes")
    assert (done["changed"], done["offsets"]) == (True, would["offsets"] - 1)
    assert "leaver" not in {group["group"] for group in cluster.json("group", "list")}
    cluster.run("group", "delete", "leaver", "--yes", expect=1)
    assert sorted(received(cluster, "forgotten", "leaver", 30)) == sorted(lines)


@pytest.mark.thorough
def test_a_group_with_a_member_is_deleted_by_force_only_and_its_member_begins_anew(
    cluster: Up, tmp_path: Path
) -> None:
    sent(cluster, "busy", numbers(3))
    output = tmp_path / "output"
    with output.open("wb") as stdout:
        member = subprocess.Popen(
            [*AEROBEE, "consume", "busy", "--group", "stays", "--idle-timeout", "60"],
            stdout=stdout,
            env={**os.environ, "AEROBEE_NAMESERVER": cluster.document()["nameserver"]},
        )
    try:

        def printed() -> int:
            return len(output.read_bytes().splitlines())

        wait_until(lambda: printed() == 3, "all messages")
        refused = cluster.run("group", "delete", "stays", "--yes", expect=1)
        assert "--force" in refused.stderr
        done = cluster.json("group", "delete", "stays", "--force", "--yes")
        assert done["members"] > 0
        # What it had read comes again, to a group that begins at the first message.
        wait_until(lambda: printed() == 6, "all messages again")
        sent(cluster, "busy", ["more"])
        wait_until(lambda: printed() == 7, "the next message")
    finally:
        member.kill()
        member.wait()


def test_a_schedule_is_added_listed_changed_run_paused_and_removed(cluster: Up) -> None:
    cluster.run("topic", "create", "reports", "--queues", "1")
    added = cluster.run(
        *("schedule", "add", "daily", "reports", "--cron", "0 8 * * MON-FRI"),
        *("--zone", "Europe/Berlin", "--body", "go", "--tag", "t", "--key", "k"),
    )
    assert "daily runs next at" in added.stdout
    again = cluster.run(
        "schedule", "add", "daily", "reports", "--every", "1h", "--body", "go", expect=1
    )
    assert "there is a schedule 'daily'" in again.stderr
    cluster.run("schedule", "add", "x", "reports", "--body", "go", expect=2)
    cluster.run("schedule", "run-now", "daily")
    assert received(cluster, "reports", "readers", 1) == ["go"]
    assert "Europe/Berlin" in cluster.run("schedule", "recurring", "--wide").stdout
    cluster.run("schedule", "pause", "daily")
    cluster.run("schedule", "change", "daily", "--every", "1h", "--max-runs", "5", "--body", "!")
    (row,) = cluster.json("schedule", "recurring", "reports")["schedules"]
    assert (row["everyMs"], row["maxRuns"], row["body"]) == (3_600_000, 5, "!")
    assert (row["paused"], row["tag"], row["keys"]) == (True, "t", ["k"])
    cluster.run("schedule", "resume", "daily")
    shown = json.loads(cluster.run("schedule", "show", "daily").stdout)
    assert shown["nextMs"] > shown["createdMs"]
    cluster.run("schedule", "remove", "daily", "--yes")
    cluster.run("schedule", "show", "daily", expect=1)
    gone = cluster.json("schedule", "pause", "daily", expect=1)
    assert [each["paused"] for each in gone] == [False]


def test_a_topic_has_a_schema_that_is_checked_when_it_changes(cluster: Up, tmp_path: Path) -> None:
    cluster.run("topic", "create", "typed", "--queues", "1")
    assert "no schema" in cluster.run("topic", "schema", "show", "typed", expect=1).stderr
    old, new, wrong = (tmp_path / name for name in ("old", "new", "wrong"))
    old.write_text('{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}')
    new.write_text('{"type":"object","properties":{"a":{"type":"string"},"b":{}},"required":["a"]}')
    wrong.write_text('{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}')
    cluster.run("topic", "schema", "set", "typed", str(old))
    assert cluster.run("topic", "schema", "check", "typed", str(new)).stdout == "compatible\n"
    cluster.run("topic", "schema", "set", "typed", str(new))
    assert json.loads(cluster.run("topic", "schema", "show", "typed").stdout)["required"] == ["a"]
    assert (
        "integer" in cluster.run("topic", "schema", "check", "typed", str(wrong), expect=1).stdout
    )
    refused = cluster.run("topic", "schema", "set", "typed", str(wrong), expect=2)
    assert "is not changed" in refused.stderr
    cluster.run("topic", "schema", "set", "typed", str(wrong), "--force")
    cluster.run("topic", "schema", "remove", "typed", "--yes")
