"""`aerobee up`, `produce` and `consume`: real processes, real signals."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from aerobee.store.format.recall_handle import RecallHandle
from tests.support.local_up import (
    AEROBEE,
    PATIENCE_S,
    Up,
    is_alive,
    numbers,
    received,
    sent,
)

pytestmark = pytest.mark.slow


def test_the_ready_file_says_where_everything_is(cluster: Up) -> None:
    document = cluster.document()
    assert [broker["name"] for broker in document["brokers"]] == ["broker-a", "broker-b"]
    assert set(document["pids"]) == {"etcd", "nameserver", "broker-a", "broker-b"}
    assert all(is_alive(pid) for pid in cluster.pids())
    assert document["pid"] == cluster.process.pid
    assert "ready in " in cluster.said()


def test_metrics_are_served_where_the_ready_file_says(cluster: Up) -> None:
    metrics = cluster.document()["metrics"]
    assert set(metrics) == {"nameserver", "broker-a", "broker-b"}
    for address in metrics.values():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
            assert b"aerobee_" in answer.read()


def test_clients_outside_are_told_addresses_outside(cluster: Up) -> None:
    cluster.run("topic", "create", "both-sides", "--queues", "2")
    outside = cluster.document()["outside"]

    def told(*arguments: str) -> set[str]:
        queues = cluster.json("topic", "show", "both-sides", *arguments)["queues"]
        return {each["address"] for each in queues}

    assert told() == {each["address"] for each in cluster.document()["brokers"]}
    assert told("--nameserver", outside["nameserver"]) == {outside["broker-a"], outside["broker-b"]}


def test_a_few_lines_are_spread_over_the_queues(cluster: Up) -> None:
    cluster.run("topic", "create", "spread-out", "--queues", "4")
    sent(cluster, "spread-out", numbers(50))
    held = [each["maxOffset"] for each in cluster.json("topic", "show", "spread-out")["queues"]]
    assert sum(held) == 50
    assert max(held) < 50


def test_an_error_before_anything_was_sent_does_not_count_what_was_sent(cluster: Up) -> None:
    refused = cluster.run("produce", "a b", given="x\n", expect=2)
    assert "before that" not in refused.stderr


def test_what_was_produced_is_consumed_once_by_a_group(cluster: Up) -> None:
    lines = numbers(500)
    sent(cluster, "once", lines)
    assert sorted(received(cluster, "once", "readers", 500)) == sorted(lines)
    nothing = cluster.run("consume", "once", "--group", "readers", "--idle-timeout", "1.5")
    assert nothing.stdout == ""
    assert sorted(received(cluster, "once", "others", 500)) == sorted(lines)


def test_a_count_commits_no_more_than_it_printed(cluster: Up) -> None:
    lines = numbers(300)
    sent(cluster, "counted", lines)
    first = received(cluster, "counted", "g", 120)
    second = received(cluster, "counted", "g", 180)
    assert sorted(first + second) == sorted(lines)


def test_fewer_messages_than_counted_are_a_negative_answer(cluster: Up) -> None:
    sent(cluster, "few", numbers(2))
    done = cluster.run(
        *("consume", "few", "--group", "g", "--from", "first"),
        *("--count", "5", "--idle-timeout", "2"),
        expect=1,
    )
    assert sorted(done.stdout.splitlines()) == numbers(2)
    assert done.stderr == "2 of 5 messages arrived, then none within 2 s\n"


def test_no_message_within_the_idle_timeout_is_said(cluster: Up) -> None:
    cluster.run("topic", "create", "silent")
    asked = ("consume", "silent", "--group", "g", "--count", "1", "--idle-timeout", "1s")
    done = cluster.run(*asked, "--from", "first", expect=1)
    assert (done.stdout, done.stderr) == ("", "0 of 1 messages arrived within 1 s\n")


def test_a_new_group_is_told_where_it_starts(cluster: Up) -> None:
    sent(cluster, "begun", numbers(2))
    asked = ("consume", "begun", "--group", "new", "--count", "1")
    assert cluster.run(*asked).stderr == (
        "group new is new on begun and starts at the first message; to start elsewhere, give "
        "--from last or --from TIME\n"
    )
    assert cluster.run(*asked).stderr == ""
    asked = ("consume", "begun", "--group", "other", "--count", "1")
    assert cluster.run(*asked, "--from", "first").stderr == ""


def test_a_tag_expression_selects(cluster: Up) -> None:
    for tag in ("red", "green", "blue"):
        sent(cluster, "tagged", [f"{tag} {line}" for line in numbers(50)], "--tag", tag)
    got = received(cluster, "tagged", "g", 100, "--tag", "red || blue")
    assert {line.split()[0] for line in got} == {"red", "blue"}
    for also in ([], ["--group", "g"]):
        refused = cluster.run("consume", "tagged", *also, "--tag", "red, blue", expect=2)
        assert "write 'red || blue'" in refused.stderr


def test_a_condition_selects_by_properties(cluster: Up) -> None:
    for price in range(10):
        sent(cluster, "priced", [f"{price}"], "--property", f"price={price}", "--tag", "t")
    condition = "price > 5 AND TAGS = 't' -- and no more"
    assert sorted(received(cluster, "priced", "g", 4, "--sql", condition)) == ["6", "7", "8", "9"]
    asked = ("consume", "priced", "--group", "g")
    refused = cluster.run(*asked, "--sql", "price LIKE '5%'", expect=2)
    assert "at character 7" in refused.stderr
    refused = cluster.run(*asked, "--sql", "price > 5", "--tag", "t", expect=2)
    assert "--tag and --sql cannot be combined" in refused.stderr


def test_json_lines_go_out_as_they_came_in(cluster: Up) -> None:
    line = {"body": "grüße", "tag": "t", "keys": ["k1", "k2"], "properties": {"colour": "blue"}}
    sent(cluster, "json", [json.dumps(line)], "--format", "json")
    (printed,) = received(cluster, "json", "g", 1, "--format", "json")
    document = json.loads(printed)
    assert {name: document[name] for name in line} == line
    sent(cluster, "json-again", [printed], "--format", "json")
    (again,) = received(cluster, "json-again", "g", 1, "--json")
    assert {name: json.loads(again)[name] for name in line} == line


def test_one_sharding_key_keeps_the_order(cluster: Up) -> None:
    lines = numbers(2_000)
    sent(cluster, "ordered", lines, "--sharding-key", "k")
    assert received(cluster, "ordered", "g", 2_000) == lines


def test_broadcasting_members_each_get_everything(cluster: Up, home: Path) -> None:
    sent(cluster, "news", numbers(40))
    for member in ("m1", "m2"):
        offsets = home / ".rocketmq_offsets" / member / "watchers" / "offsets.json"
        assert not offsets.exists()
        got = received(cluster, "news", "watchers", 40, "--broadcast", "--client-id", member)
        assert sorted(got) == sorted(numbers(40))
        assert offsets.exists()


def test_produce_reports_what_it_did(cluster: Up, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("\n".join(numbers(1_000)) + "\n\n")
    figures = cluster.json("produce", "reported", str(file))
    assert (figures["topic"], figures["messages"]) == ("reported", 1_000)
    assert figures["bytes"] == sum(len(line) for line in numbers(1_000))
    assert figures["messagesPerSecond"] > 0
    nothing = cluster.run("produce", "reported", given="\n")
    assert nothing.stdout == "nothing to send: the input was empty\n"


def test_produce_says_that_it_created_the_topic(cluster: Up) -> None:
    created = cluster.run("produce", "tyop", given="one\n").stderr
    queues = len(cluster.json("topic", "show", "tyop")["queues"])
    assert created == f"created topic tyop with {queues} queues\n"
    assert cluster.run("produce", "tyop", given="two\n").stderr == ""


def test_produce_names_what_arrives_at_a_time_by_recall_handles(
    cluster: Up, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_text("\n".join(numbers(2_500)))
    figures = cluster.json("produce", "later", str(file), "--delay", "2h")
    handles = [RecallHandle.decode(text) for text in figures["recallHandles"]]
    assert len({handle.unique_key for handle in handles}) == figures["messages"] == 2_500
    assert {handle.topic for handle in handles} == {"later"}
    tomorrow = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    shown = cluster.run("produce", "later", "--at", tomorrow.isoformat(), given="one\n").stdout
    handle, report = shown.splitlines()
    assert RecallHandle.decode(handle).deliver_ms == tomorrow.timestamp() * 1_000
    assert report.startswith("sent 1 message")
    by_level = cluster.json("produce", "later", str(file), "--delay-level", "18")
    assert "recallHandles" not in by_level
    both = cluster.run("produce", "later", "--delay", "1s", "--delay-level", "1", expect=2)
    assert "exclude each other" in both.stderr


def test_a_rate_is_kept(cluster: Up, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("\n".join(numbers(100)))
    figures = cluster.json("produce", "slow", str(file), "--rate", "100")
    assert 0.9 <= figures["seconds"] <= 3.0


def test_a_reader_that_has_enough_ends_it_quietly(cluster: Up) -> None:
    sent(cluster, "piped", numbers(20_000))
    member = subprocess.Popen(
        [*AEROBEE, "consume", "piped", "--group", "piped", "--quiet"],
        env={**os.environ, "AEROBEE_NAMESERVER": cluster.document()["nameserver"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert member.stdout is not None
    assert member.stderr is not None
    assert member.stdout.readline().startswith(b"message ")
    member.stdout.close()
    assert member.wait(PATIENCE_S) == 141
    assert member.stderr.read() == b""
    member.stderr.close()
    # What could not be printed is not committed.
    assert cluster.json("group", "show", "piped")["lag"] > 0


def test_commands_whose_reader_is_gone_end_quietly(cluster: Up) -> None:
    # A queue on each broker: both get some of the batches.
    cluster.run("topic", "create", "unread", "--queues", "2")
    sent(cluster, "unread", numbers(5_000))
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as closed:
        commands = [
            subprocess.Popen(
                [*AEROBEE, *arguments],
                env={**os.environ, "AEROBEE_NAMESERVER": cluster.document()["nameserver"]},
                stdout=closed,
                stderr=subprocess.PIPE,
            )
            for arguments in (
                ["consume", "unread"],
                ["consume", "unread", "--json", "--queue", "broker-a:0"],
                ["topic", "list"],
                ["group", "lag", "--watch", "--json"],
                ["doctor"],
            )
        ]
    for each in commands:
        _, told = each.communicate(timeout=PATIENCE_S)
        assert (each.returncode, told) == (141, b""), each.args


def test_an_unreachable_cluster_is_one_sentence() -> None:
    for arguments in (
        ["topic", "list"],
        ["produce", "t"],
        ["consume", "t", "--group", "g"],
        ["group", "list"],
        ["cluster", "show"],
    ):
        done = subprocess.run(
            [*AEROBEE, *arguments, "--nameserver", "127.0.0.1:1"],
            input="line\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 3, (arguments, done.stderr)
        assert done.stderr.splitlines()[-1] == (
            "aerobee: cannot reach the cluster: no nameserver answers at 127.0.0.1:1; start one "
            "with `aerobee up`, or name another with --nameserver"
        )
        assert "Traceback" not in done.stderr
