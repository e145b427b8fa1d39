"""`aerobee tier` as an operator uses it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aerobee.cli.__main__ import main
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY, segment_path
from aerobee.store.tier.folder_objects import FolderObjects
from aerobee.store.tier.manifest import Manifest, segment_object_name
from aerobee.store.tier.tables import pack_tables
from aerobee.store.tier.uploads import Upload, Writer, local_segment

SIZE = 3_000


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """A tier with three segments of broker-a."""
    (tmp_path / "mount").mkdir()
    (tmp_path / "store").mkdir()
    disk = RealDisk(tmp_path / "store")
    disk.make_directory(COMMIT_LOG_DIRECTORY)
    objects = FolderObjects(tmp_path / "mount", "aerobee/broker-a", SystemClock())
    previous: Manifest | None = None
    for number in range(3):
        base = number * SIZE
        file = disk.open_file(segment_path(base), create=True)
        file.write_at(0, (random.Random(number).randbytes(SIZE),))
        file.close()
        local = local_segment(disk, base, base + SIZE, ())
        previous = Upload(
            objects,
            disk,
            local,
            previous,
            Writer(0, "w"),
            tables=pack_tables(disk),
            written_ms=1_700_000_000_000,
            now_ms=1_700_000_001_000,
        ).run()
    return tmp_path / "mount"


def tier(mount: Path, command: str, *arguments: object) -> Result:
    return CliRunner().invoke(
        main, ["tier", command, "broker-a", *map(str, arguments), "--tier", f"file://{mount}"]
    )


def object_path(mount: Path, number: int) -> Path:
    return mount / "aerobee/broker-a" / segment_object_name(number * SIZE, epoch=0, writer="w")


def test_status_says_which_part_of_the_log_is_there(mount: Path) -> None:
    result = tier(mount, "status")
    assert result.exit_code == 0, result.output
    assert "log          0 to 9000, without a break" in result.stdout
    document = json.loads(tier(mount, "status", "--json").stdout)
    assert (document["minOffset"], document["maxOffset"]) == (0, 9_000)
    assert document["bytes"] == 9_000


def test_an_empty_tier_is_said_to_be_empty(tmp_path: Path) -> None:
    assert tier(tmp_path, "status").stdout == "nothing is in the tier\n"


def test_verify_finds_damage_and_says_so_by_its_exit_code(mount: Path) -> None:
    assert tier(mount, "verify").stdout.endswith("everything is there and sound\n")
    path = object_path(mount, 1)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert tier(mount, "verify", "--quick").exit_code == 0
    result = tier(mount, "verify", "--json")
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert finding["kind"] == "object damaged"
    assert "other bytes than were written" in tier(mount, "verify").stdout


def test_a_store_is_compared_with_the_tier(mount: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    same = tier(mount, "verify", "--quick", "--folder", store)
    assert same.exit_code == 0, same.output
    assert f"compared     3 segments of {store}" in same.stdout
    (store / segment_path(0)).unlink()
    path = store / segment_path(SIZE)
    path.write_bytes(b"!" + path.read_bytes()[1:])
    differs = tier(mount, "verify", "--quick", "--folder", store, "--json")
    assert differs.exit_code == 1
    document = json.loads(differs.stdout)
    assert document["compared"] == 2, "what is no longer on the disk is no difference"
    assert [finding["kind"] for finding in document["findings"]] == ["store differs"]


def test_a_restored_folder_has_the_log(mount: Path, tmp_path: Path) -> None:
    result = tier(mount, "restore", tmp_path / "new" / "folder")
    assert result.exit_code == 0, result.output
    assert "the log from 0 to 9000, 3 segments" in result.stdout
    for number in range(3):
        path = segment_path(number * SIZE)
        assert (tmp_path / "new/folder" / path).read_bytes() == (
            tmp_path / "store" / path
        ).read_bytes()
    again = tier(mount, "restore", tmp_path / "new" / "folder")
    assert again.exit_code == 2
    assert "is not empty" in again.stderr


def test_forget_asks_and_removes_what_it_says(mount: Path) -> None:
    assert tier(mount, "forget", "--before", SIZE).exit_code == 2, "no terminal, no --yes"
    result = tier(mount, "forget", "--before", SIZE, "--yes")
    assert result.stdout == "1 segment removed, 2 segments kept\n"
    assert not object_path(mount, 0).exists()
    assert tier(mount, "verify").exit_code == 0
    document = json.loads(tier(mount, "forget", "--from", 2 * SIZE, "--yes", "--json").stdout)
    assert document == {"removed": 1, "kept": 1}
    assert tier(mount, "forget").exit_code == 2


def test_forget_by_age_keeps_the_newest(mount: Path) -> None:
    kept = tier(mount, "forget", "--older-than", "3650d", "--yes")
    assert kept.stdout == "0 segments removed, 3 segments kept\n"
    assert tier(mount, "forget", "--older-than", "1d", "--yes").stdout == (
        "2 segments removed, 1 segment kept\n"
    )
    assert tier(mount, "verify").exit_code == 0
    assert tier(mount, "forget", "--older-than", "1d", "--from", "0", "--yes").exit_code == 2


def test_a_tier_that_is_away_is_no_answer(tmp_path: Path) -> None:
    result = tier(tmp_path / "unmounted", "status")
    assert result.exit_code == 3
    assert "check the folder" in result.stderr
