"""What a broker knows of delayed messages beside its log fits the log again after a repair."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from aerobee.broker.timers.index_works import INDEX_FOLDER, MANIFEST
from aerobee.broker.timers.state import PROGRESS_PATH
from aerobee.cli.__main__ import main
from aerobee.store.format.delayed_records import TIMER_TOPIC
from aerobee.store.format.record_view import Record
from aerobee.store.format.tags import SCHEDULE_TOPIC
from tests.broker.delayed.test_deaths import SEGMENT, Sender
from tests.support.real_brokers import BrokerProcess
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.many_files]

LATE_MS = 6_000
"""Due after the broker has been stopped, and most likely after it was started again."""


def broker_of(root: Path) -> BrokerProcess:
    return BrokerProcess("broker-a", root, {"t": 1}, {"segment_bytes": SEGMENT})


def records_of(root: Path) -> Iterator[Record]:
    """Of the log's only segment, in their order."""
    (segment,) = (root / "commitlog").iterdir()
    data = segment.read_bytes()
    position = 0
    while int.from_bytes(data[position : position + 4], "big"):
        record = Record(data, position)
        yield record
        position = record.end


def waiting_of(root: Path) -> list[Record]:
    return [record for record in records_of(root) if record.topic in (TIMER_TOPIC, SCHEDULE_TOPIC)]


def flip_body_of(root: Path, record: Record) -> None:
    (segment,) = (root / "commitlog").iterdir()
    at = record.start + record.body_span[0]
    with segment.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def repair(root: Path, *options: str) -> None:
    result = CliRunner().invoke(main, ["store", "repair", str(root), *options, "--apply"])
    assert result.exit_code == 0, result.output


def forget_all(root: Path) -> list[Record]:
    """As if a copy of the folder had been made without these files."""
    for path in root.glob(f"{PROGRESS_PATH}*"):
        path.unlink()
    shutil.rmtree(root / INDEX_FOLDER, ignore_errors=True)
    return waiting_of(root)


def cut_in_the_middle(root: Path) -> list[Record]:
    """All of these files are then ahead of the log; deliveries are cut away, too."""
    waiting = waiting_of(root)
    flip_body_of(root, waiting[len(waiting) // 2])
    repair(root, "--cut-at-damage")
    return waiting_of(root)


def quarantine_one(root: Path) -> list[Record]:
    """The index lists what cannot be read any more."""
    damaged = waiting_of(root)[-1]
    flip_body_of(root, damaged)
    repair(root)
    return [record for record in waiting_of(root) if record.start != damaged.start]


@pytest.mark.thorough
@pytest.mark.parametrize("damage", [forget_all, cut_in_the_middle, quarantine_one])
async def test_what_the_log_has_comes_once_after_a_repair(
    tmp_path: Path, damage: Callable[[Path], list[Record]]
) -> None:
    root = tmp_path / "store"
    sender, broker = Sender(1), broker_of(root)
    try:
        await broker.start()
        await sender.send(broker.address)
        await sender.until_all_have_come(broker.address)
        await sender.send_in(broker.address, LATE_MS)
        await broker.end()
        assert (root / PROGRESS_PATH).exists()
        assert (root / MANIFEST).exists()
        expected = {bytes(record.body) for record in damage(root)}
        assert expected

        broker = broker_of(root)
        await broker.start()

        async def have_come() -> bool:
            return expected <= {bytes(each.body) for each in await sender.pulled(broker.address)}

        await until(have_come, "what the log has comes")
        counts = Counter(bytes(each.body) for each in await sender.pulled(broker.address))
        assert counts == dict.fromkeys(expected, 1)
    finally:
        await broker.stop()
        await sender.close()
