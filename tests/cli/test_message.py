"""`aerobee message` against a cluster of two brokers, as a user calls it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.clusters import ClusterProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with asyncio.Runner() as runner:
        cluster = ClusterProcess(tmp_path_factory.mktemp("message"), "--brokers", "2")
        runner.run(cluster.start())
        try:
            yield cluster
        finally:
            runner.run(cluster.close())


class Cli:
    def __init__(self, cluster: ClusterProcess) -> None:
        self._nameserver = cluster.nameserver

    def __call__(
        self, *arguments: str, lines: str = "", code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "aerobee.cli", *arguments, "--nameserver", self._nameserver],
            input=lines,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json").stdout)


@pytest.fixture(scope="module")
def cli(cluster: ClusterProcess) -> Cli:
    """With six orders over both brokers, two of them of one customer."""
    cli = Cli(cluster)
    cli("topic", "create", "orders", "--queues", "4")
    for number in range(6):
        line = {
            "body": f"order {number}\nsecond line",
            "tag": "paid",
            "keys": [f"order-{number}", f"customer-{number % 3}"],
            "properties": {"shop": "北京"},
            "shardingKey": f"s{number}",
        }
        cli("produce", "orders", "--format", "json", lines=json.dumps(line) + "\n")
    return cli


def test_a_query_lists_the_messages_of_a_key_newest_first(cli: Cli) -> None:
    table = cli("message", "query", "orders", "--key", "customer-1").stdout.splitlines()
    assert table[0].split() == [
        "stored", "broker", "queue", "offset", "id", "tag", "keys", "body",
    ]  # fmt: skip
    assert len(table) == 3
    assert "order-4 customer-1  order 4\\nsecond line" in table[1]
    assert "order-1 customer-1  order 1\\nsecond line" in table[2]
    found = cli.json("message", "query", "orders", "--key", "customer-1")
    assert [message["keys"][0] for message in found["messages"]] == ["order-4", "order-1"]
    assert (found["more"], found["unanswered"]) == (False, [])
    assert found["messages"][0]["properties"] == {"shop": "北京"}
    newest = cli("message", "query", "orders", "--key", "customer-1", "--max", "1")
    assert "order-4" in newest.stdout
    assert "order-1 " not in newest.stdout
    assert (
        newest.stderr.strip()
        == "there are more: raise --max, or bound the time with --begin and --end"
    )


def test_times_bound_a_query(cli: Cli) -> None:
    newest, oldest = cli.json("message", "query", "orders", "--key", "customer-1")["messages"]
    between = str(oldest["storedMs"] + 1)
    late = cli.json("message", "query", "orders", "--key", "customer-1", "--begin", between)
    assert late["messages"] == [newest]
    early = cli.json("message", "query", "orders", "--key", "customer-1", "--end", between)
    assert early["messages"] == [oldest]
    both = ("--begin", "1h", "--end", "last")
    assert (
        len(cli.json("message", "query", "orders", "--key", "customer-1", *both)["messages"]) == 2
    )
    wrong = cli(
        *("message", "query", "orders", "--key", "customer-1", "--begin", "1s", "--end", "1h"),
        code=2,
    )
    assert "is later than the end" in wrong.stderr


def test_nothing_found_is_exit_code_1(cli: Cli) -> None:
    none = cli("message", "query", "orders", "--key", "no-such", code=1)
    assert (none.stdout, none.stderr.strip()) == ("", "no message found")
    unknown = cli("message", "query", "no-topic", "--key", "k", code=1)
    assert "no-topic" in unknown.stderr


def test_one_message_is_shown_by_any_of_its_names(cli: Cli) -> None:
    for number in (0, 5):
        (listed,) = cli.json("message", "query", "orders", "--key", f"order-{number}")["messages"]
        by_id = cli.json("message", "get", listed["offsetMessageId"])
        assert by_id == listed
        assert cli.json("message", "get", listed["messageId"], "--topic", "orders") == listed
        both = ("message", "get", listed["offsetMessageId"], "--topic", "orders")
        assert cli.json(*both) == listed
        by_key = cli.json("message", "query", "orders", "--unique-key", listed["messageId"])
        assert by_key["messages"] == [listed]
        offset = int(listed["offsetMessageId"][-16:], 16)
        assert cli.json("message", "get", f"{listed['broker']}:{offset}") == listed


def test_a_message_is_shown_with_all_that_is_stored(cli: Cli) -> None:
    (listed,) = cli.json("message", "query", "orders", "--key", "order-5")["messages"]
    shown = cli("message", "get", listed["offsetMessageId"]).stdout
    head, _, body = shown.partition("\n\n")
    assert body == "order 5\nsecond line\n"
    rows = dict(line.split(None, 1) for line in head.splitlines())
    assert rows["topic"] == "orders"
    assert rows["queue"] == f"{listed['broker']}:{listed['queue']}"
    assert rows["id"] == listed["messageId"]
    assert (rows["TAGS"], rows["KEYS"], rows["shop"]) == ("paid", "order-5 customer-2", "北京")


def test_an_id_that_leads_nowhere_says_what_to_do(cli: Cli) -> None:
    for message_id, code, words in (
        ("0A00000500002A9F0000000040000400", 1, "no broker has message"),
        ("0A00000500002A9F0000000040000400", 1, "then name the topic with --topic"),
        ("nonsense", 2, "neither an offset message id (32 or 56 hex digits) nor BROKER:OFFSET"),
        ("broker-a:1", 1, "no message begins at physical offset 1"),
        ("broker-z:0", 3, "no live broker is named 'broker-z'"),
    ):
        assert words in cli("message", "get", message_id, code=code).stderr
    missing = cli("message", "get", "nonsense", "--topic", "orders", code=1)
    assert "topic orders has no message with the id nonsense" in missing.stderr
    cli("message", "query", "orders", code=2)
    cli("message", "query", "orders", "--key", "a", "--unique-key", "b", code=2)


def test_a_broker_that_is_away_is_named(cluster: ClusterProcess, cli: Cli) -> None:
    listed = next(
        message
        for customer in range(3)
        for message in cli.json("message", "query", "orders", "--key", f"customer-{customer}")[
            "messages"
        ]
        if message["broker"] == "broker-b"
    )
    os.kill(cluster.pids()["broker-b"], signal.SIGSTOP)
    try:
        lost = cli("message", "get", listed["offsetMessageId"], code=3)
        assert "broker-b did not answer" in lost.stderr
        found = cli("message", "query", "orders", "--key", listed["keys"][0], code=5)
        assert "no answer from broker-b" in found.stderr
    finally:
        os.kill(cluster.pids()["broker-b"], signal.SIGCONT)
