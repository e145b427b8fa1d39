"""`aerobee store verify` and `repair` on stores of an Apache broker, whole and damaged."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aerobee.cli.__main__ import main
from tests.support.damaged_stores import flip_bit

EXPECTED = {
    "clean-small": {},
    "crashed": {"ABORT_PRESENT": 1},
    "crashed-torn": {
        "ABORT_PRESENT": 1,
        "LOG_TORN_TAIL": 1,
        "QUEUE_AHEAD": 6,
        "QUEUE_BEHIND_LOG": 1,
    },
    "retained": {"CONSUMER_OFFSET_REMOVED": 3},
    "ipv6-v2": {},
}


def store(command: str, *arguments: object) -> tuple[int, Any]:
    result = CliRunner().invoke(main, ["store", command, *map(str, arguments), "--json"])
    return result.exit_code, json.loads(result.stdout)


def test_a_store_that_apache_wrote_is_sound(golden: Any) -> None:
    before = golden.files()
    code, document = store("verify", golden.root)
    assert code == 0
    assert document["counts"] == EXPECTED[golden.name]
    assert document["read"]["records"] == golden.manifest["commitLog"]["records"]
    if golden.manifest["state"] == "clean":  # of the others it tells what recovery leaves
        listed = sum(file["indexCount"] - 1 for file in golden.manifest["index"]["files"])
        assert document["read"]["indexEntries"] == listed
    assert golden.files() == before


def test_what_a_crash_tore_off_is_put_in_order(extract_golden: Callable[[str], Any]) -> None:
    golden = extract_golden("crashed-torn")
    code, document = store("repair", golden.root, "--apply")
    assert code == 0
    assert [step["action"] for step in document["plan"]["steps"]] == ["copy", "cut"]
    assert document["plan"]["lost"] == []
    assert document["verify"]["counts"] == {}


@pytest.mark.parametrize("seed", range(5))
def test_flipped_bits_anywhere_are_mended(extract_golden: Callable[[str], Any], seed: int) -> None:
    golden = extract_golden("clean-small")
    chance = random.Random(seed)
    for kind in ("commitlog", "commitlog", "consumequeue", "index"):
        file = chance.choice(
            [path for path in Path(golden.root, kind).rglob("*") if path.is_file()]
        )
        flip_bit(file, chance.randrange(file.stat().st_size), chance.randrange(8))
    code, document = store("repair", golden.root, "--apply")
    assert code == 0, document["verify"]["findings"]
    assert document["verify"]["sound"]
