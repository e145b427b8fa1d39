"""`aerobee store stats` as an operator uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aerobee.cli.__main__ import main
from tests.support.damaged_stores import MESSAGES, body_of, files_of, make_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stats") / "store"
    make_store(root)
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_bytes(
        b'{"offsetTable":{"orders@billing":{0:10,1:40}}}'
    )
    return root


def stats(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["store", "stats", *map(str, arguments)])


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    result = stats(tmp_path)
    assert result.exit_code == 3
    assert result.stderr == (
        f"aerobee: {tmp_path} is not a store: it has no commitlog, consumequeue or config in it\n"
    )


def test_a_dump_of_one_topic_shows_the_offsets_of_that_topic_alone(store: Path) -> None:
    def dumped(*arguments: str) -> str:
        return CliRunner().invoke(main, ["store", "dump", str(store), *arguments]).stdout

    assert "billing" in dumped("--topic", "orders")
    assert "billing" not in dumped("--topic", "payments")
    assert json.loads(dumped("--topic", "payments", "--json"))["consumerOffsets"] == {}


def test_counts_and_bytes_are_those_of_the_messages(store: Path) -> None:
    before = files_of(store)
    result = stats(store, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["messages"] == MESSAGES
    by_topic = {topic["topic"]: topic for topic in document["topics"]}
    assert {name: topic["messages"] for name, topic in by_topic.items()} == {
        "orders": 80,
        "payments": 40,
    }
    assert by_topic["orders"]["queues"] == 2
    # 120 messages, one each half second; the orders are the first and the last but one.
    assert by_topic["orders"]["lastStored"] - by_topic["orders"]["firstStored"] == 59_000
    assert by_topic["orders"]["messagesPerSecond"] == pytest.approx(80 / 59, abs=0.1)
    assert "walk" not in document
    assert files_of(store) == before


def test_queues_largest_messages_and_lag_are_listed(store: Path) -> None:
    document = json.loads(stats(store, "--json").stdout)
    assert [
        (q["topic"], q["queue"], q["minOffset"], q["maxOffset"]) for q in document["queues"]
    ] == [
        ("orders", 0, 0, 40),
        ("orders", 1, 0, 40),
        ("payments", 0, 0, 40),
    ]
    sizes = [message["size"] for message in document["largest"]]
    assert sizes == sorted(sizes, reverse=True)
    largest = max(range(MESSAGES), key=lambda number: len(body_of(number)))
    top = document["largest"][0]
    assert len(body_of(top["offset"] * 3 + 2)) == len(body_of(largest))
    (group,) = document["groups"]
    assert (group["group"], group["topic"], group["lag"]) == ("billing", "orders", 30)


def test_a_full_run_walks_the_log_and_the_index(store: Path) -> None:
    document = json.loads(stats(store, "--json", "--full").stdout)
    walk = document["walk"]
    assert walk["records"] == MESSAGES
    assert sum(hour["records"] for hour in walk["recordsByHour"]) == MESSAGES
    assert walk["damagedRegions"] == 0
    assert sum(file["keys"] for file in document["index"]) == 3 * MESSAGES
    assert all(file["longestChain"] >= file["averageChain"] for file in document["index"])


def test_people_get_tables(store: Path) -> None:
    result = stats(store, "--queues", "--full")
    assert result.exit_code == 0, result.output
    for text in ("messages: 120 with", "payments", "billing", "largest", "index file", "walk: 120"):
        assert text in result.stdout
