"""`aerobee store repair` as an operator uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aerobee.broker.replication.state_file import STATE_PATH, ReplicaState
from aerobee.cli.__main__ import main
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.folder_state import lock_store
from aerobee.store.engine.tables.atomic_file import replace_atomically
from tests.support.damaged_stores import (
    CONFIG,
    body_of,
    copy_of,
    files_of,
    flip_bit,
    make_store,
    segments,
)
from tests.support.stores import open_store, read_queue


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repair") / "store"
    make_store(root)
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return copy_of(made, tmp_path / "store")


def repair(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["store", "repair", *map(str, arguments)])


def damage_message_44(store: Path) -> None:
    file = next(file for file in segments(store) if body_of(44) in file.read_bytes())
    flip_bit(file, file.read_bytes().index(body_of(44)))


def test_without_apply_only_the_plan_is_shown(store: Path) -> None:
    damage_message_44(store)
    before = files_of(store)
    result = repair(store)
    assert result.exit_code == 0, result.output
    assert "2. quarantine commitlog/" in result.stdout
    assert "would be lost: 1 message\n" in result.stdout
    assert "    payments, queue 0: offset 14" in result.stdout
    assert "nothing was changed; apply the repair with --apply" in result.stdout
    assert files_of(store) == before
    assert not list(store.glob("repair-*"))


def test_a_repaired_log_does_not_pass_for_the_one_that_a_replica_had(store: Path) -> None:
    disk = RealDisk(store)
    state = ReplicaState(broker_id=1, instance="run-1", incarnation="log-1")
    replace_atomically(disk, STATE_PATH, state.encode())
    assert repair(store, "--apply").exit_code == 0
    assert ReplicaState.decode(disk.read_file(STATE_PATH)) == state, "nothing was damaged"
    damage_message_44(store)
    assert repair(store, "--apply").exit_code == 0
    assert ReplicaState.decode(disk.read_file(STATE_PATH)).incarnation != "log-1"


def test_apply_repairs_keeps_a_copy_and_verifies(store: Path) -> None:
    damage_message_44(store)
    result = repair(store, "--apply")
    assert result.exit_code == 0, result.output
    assert "lost: 1 message\n" in result.stdout
    assert "sound: 0 damage" in result.stdout
    (archive,) = store.glob("repair-*")
    manifest = json.loads((archive / "manifest.json").read_text())
    assert manifest["state"] == "done"
    assert manifest["lost"] == [
        {"topic": "payments", "queue": 0, "firstOffset": 14, "lastOffset": 14}
    ]
    (_, step) = manifest["steps"]
    assert (store / step["undo"][0]["from"]).stat().st_size == step["bytes"]
    opened = open_store(store, CONFIG)
    bodies = read_queue(opened, "payments", 0)
    opened.close()
    assert bodies[14] == b""
    assert bodies[13] == body_of(41)
    assert bodies[15] == body_of(47)


def test_undo_puts_back_what_was_there(store: Path) -> None:
    damage_message_44(store)
    before = files_of(store)
    assert repair(store, "--apply").exit_code == 0
    (archive,) = store.glob("repair-*")
    result = repair(store, "--undo", archive.name)
    assert result.exit_code == 0, result.output
    assert "are back" in result.stdout
    assert files_of(store) == before
    again = repair(store, "--undo", archive.name)
    assert again.exit_code == 3
    assert "not a repair of this store that can be undone" in again.stderr


def test_a_sound_store_is_left_alone(store: Path) -> None:
    before = files_of(store)
    for arguments in ((store,), (store, "--apply")):
        result = repair(*arguments)
        assert result.exit_code == 0, result.output
        assert "nothing to repair" in result.stdout
    assert files_of(store) == before
    assert not list(store.glob("repair-*"))


def test_a_folder_in_use_is_refused(store: Path) -> None:
    lock = lock_store(RealDisk(store))
    try:
        for arguments in ((store,), (store, "--apply"), (store, "--undo", "repair-x")):
            result = repair(*arguments)
            assert result.exit_code == 3
            assert "in use by another process" in result.stderr
    finally:
        lock.release()


def test_cutting_the_log_must_be_asked_for_and_names_all_that_goes(store: Path) -> None:
    damage_message_44(store)
    result = repair(store, "--cut-at-damage", "--json")
    lost = json.loads(result.stdout)["plan"]["lost"]
    assert lost == [
        {"topic": "orders", "queue": 0, "firstOffset": 15, "lastOffset": 39},
        {"topic": "orders", "queue": 1, "firstOffset": 15, "lastOffset": 39},
        {"topic": "payments", "queue": 0, "firstOffset": 14, "lastOffset": 39},
    ]
    assert repair(store, "--cut-at-damage", "--apply").exit_code == 0
    opened = open_store(store, CONFIG)
    assert opened.queues.bounds("payments", 0).max_offset == 14
    assert opened.queues.bounds("orders", 0).max_offset == 15
    opened.close()


def test_queues_of_one_topic_and_the_index_are_rebuilt_on_request(store: Path) -> None:
    result = repair(store, "--topic", "payments", "--rebuild-index", "--apply", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    moved = [step["file"] for step in document["plan"]["steps"] if step["action"] == "move away"]
    assert moved == ["consumequeue/payments/0", "index"]
    assert document["verify"]["sound"]
    assert document["verify"]["read"]["indexEntries"] == 360


def test_tables_come_back_from_their_backup_and_others_are_left_unless_told(store: Path) -> None:
    config = store / "config"
    config.mkdir()
    (config / "topics.json").write_bytes(b"{broken")
    (config / "topics.json.bak").write_bytes(b'{"topicConfigTable":{}}')
    (config / "delayOffset.json").write_bytes(b"{broken too")
    result = repair(store, "--apply")
    assert result.exit_code == 1
    assert "left as it is: config/delayOffset.json cannot be read" in result.stdout
    assert (config / "topics.json").read_bytes() == b'{"topicConfigTable":{}}'
    (archive,) = store.glob("repair-*")
    assert (archive / "files/config/topics.json").read_bytes() == b"{broken"
    assert repair(store, "--apply", "--drop-unreadable-tables").exit_code == 0
    assert not (config / "delayOffset.json").exists()
