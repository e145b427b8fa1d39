"""`aerobee store verify` as an operator uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aerobee.cli.__main__ import main
from tests.support.damaged_stores import (
    body_of,
    copy_of,
    files_of,
    flip_bit,
    make_store,
    queue_file,
    segment,
    segments,
    shorten,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verify") / "store"
    make_store(root)
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return copy_of(made, tmp_path / "store")


def verify(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["store", "verify", *map(str, arguments)])


def test_a_sound_store_ends_with_0_and_one_line_about_what_was_read(store: Path) -> None:
    before = files_of(store)
    result = verify(store)
    assert result.exit_code == 0, result.output
    assert "120 records in 6 segments, 3 queues with 120 entries, 360 index entries" in (
        result.stdout
    )
    assert "sound: 0 damage, 0 warnings, 0 notes" in result.stdout
    assert result.stderr == ""
    assert files_of(store) == before


def test_damage_ends_with_1_and_says_where_what_and_what_to_do(store: Path) -> None:
    file = next(file for file in segments(store) if body_of(44) in file.read_bytes())
    flip_bit(file, file.read_bytes().index(body_of(44)))
    result = verify(store)
    assert result.exit_code == 1
    assert f"damage: LOG_RECORD_CRC commitlog/{file.name} at byte" in result.stdout
    assert "a message's body is not the one that was written" in result.stdout
    assert "aerobee store repair" in result.stdout
    assert "    payments, queue 0: offset 14" in result.stdout
    assert "DAMAGED: 1 damage" in result.stdout


def test_one_json_document_has_every_finding_with_its_code(store: Path) -> None:
    flip_bit(queue_file(store, "orders", 1), 45)
    shorten(store / "checkpoint", 5)
    result = verify(store, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["sound"] is False
    assert document["counts"] == {"CHECKPOINT_UNREADABLE": 1, "QUEUE_ENTRY_WRONG": 1}
    (wrong, _) = document["findings"]
    assert wrong["code"] == "QUEUE_ENTRY_WRONG"
    assert wrong["severity"] == "damage"
    assert wrong["file"] == "consumequeue/orders/1/00000000000000000000"
    assert wrong["position"] == 40
    assert wrong["details"] == {"topic": "orders", "queue": 1, "offset": 2}
    assert document["read"]["records"] == 120


def test_warnings_alone_end_with_0(store: Path) -> None:
    config = store / "config"
    config.mkdir()
    (config / "topics.json").write_bytes(b"{broken")
    (config / "topics.json.bak").write_bytes(b'{"topicConfigTable":{}}')
    (config / "consumerOffset.json").write_bytes(
        b'{"offsetTable":{"orders@billing":{0:99,1:40},"payments@billing":{0:3}}}'
    )
    result = verify(store)
    assert result.exit_code == 0, result.output
    assert "CONFIG_FROM_BACKUP config/topics.json" in result.stdout
    assert "group billing will consume offset 99 of queue 0 of orders, which ends at 40" in (
        result.stdout
    )


def test_a_table_that_nothing_can_replace_is_damage(store: Path) -> None:
    (store / "config").mkdir()
    (store / "config" / "delayOffset.json").write_bytes(b"\xff\xff")
    result = verify(store)
    assert result.exit_code == 1
    assert "CONFIG_UNREADABLE config/delayOffset.json" in result.stdout


def test_a_table_that_starts_refuse_because_nothing_is_in_it_is_damage(store: Path) -> None:
    (store / "config").mkdir()
    for name in ("topics.json", "topics.json.bak", "not-ours.json"):
        (store / "config" / name).write_bytes(b"")
    result = verify(store)
    assert result.exit_code == 1
    assert "CONFIG_UNREADABLE config/topics.json" in result.stdout
    assert "not-ours" not in result.stdout


def test_the_index_can_be_left_out(store: Path) -> None:
    file = sorted((store / "index").iterdir())[0]
    flip_bit(file, 45)
    assert verify(store).exit_code == 1
    result = verify(store, "--no-index")
    assert result.exit_code == 0
    assert "0 index entries" in result.stdout


def test_one_short_segment_does_not_change_what_is_taken_for_the_segments_length(
    store: Path,
) -> None:
    shorten(segment(store, 0), 17)
    result = verify(store)
    assert result.exit_code == 1
    assert "it has 17 bytes, segments have 4096" in result.stdout


def test_what_is_no_store_ends_with_3_and_one_sentence(tmp_path: Path) -> None:
    for folder, sentence in (
        (tmp_path / "nothing", "is not a folder"),
        (tmp_path, "is not a store"),
    ):
        result = verify(folder)
        assert result.exit_code == 3
        assert sentence in result.stderr
        assert result.stdout == ""


def test_a_wrong_option_ends_with_2(store: Path) -> None:
    assert verify(store, "--config", "nonsense").exit_code == 2
    assert verify(store, "--config", "noSuchOption=1").exit_code == 2
