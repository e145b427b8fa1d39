"""A broker does not believe a table of offsets that lacks what its journal has: else a group would
begin again, or read again what it has finished."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aerobee.broker.groups.ownership import NOBODYS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.entries import OffsetEntry, OffsetsRemoved
from aerobee.broker.offsets.feature import Progress
from aerobee.broker.offsets.merge import Change, ChangeKind
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.store.engine.tables.config_tables import SubscriptionGroupConfig
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable, JournalMark
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.property_runs import examples
from tests.support.waiting import until

PATH = Path("config/consumerOffset.json")
LINE = re.compile(
    r"offset taken from the journal .*group=(\w+) topic=t queue_id=(\d+) offset_before=(\w+) "
    r"offset=(\d+)"
)


async def commit(broker: RunningBroker, group: str, queue_id: int, offset: int) -> None:
    done = broker.feature(Progress).offsets.commit(
        GroupQueue(group, "t", queue_id), offset, NOBODYS
    )
    if done is not None:
        await done


async def offsets(broker: RunningBroker, *groups: str) -> dict[str, dict[int, int]]:
    await until(lambda: broker.feature(Progress).journal.is_ready)
    found = broker.feature(Progress).offsets.of_group
    return {
        group: {key.queue_id: offset for key, offset in found(group) if key.topic == "t"}
        for group in groups
    }


def change(root: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """As another program changes the table: everything that it does not know stays."""
    document = json.loads((root / PATH).read_text())
    edit(document["offsetTable"])
    (root / PATH).write_text(json.dumps(document))


def lose_group(root: Path) -> None:
    change(root, lambda table: table.pop("t@billing"))


def lose_everything(root: Path) -> None:
    change(root, lambda table: table.clear())


def lower_one(root: Path) -> None:
    change(root, lambda table: table["t@billing"].update({"1": 2}))


def lose_queue(root: Path) -> None:
    change(root, lambda table: table["t@billing"].pop("0"))


def put_back_older(root: Path) -> None:
    shutil.copy(root / "older", root / PATH)


def lose_file(root: Path) -> None:
    """The backup is used."""
    (root / PATH).unlink()


def lose_both(root: Path) -> None:
    (root / PATH).unlink()
    (root / f"{PATH}.bak").unlink()


def tear_file(root: Path) -> None:
    data = (root / PATH).read_bytes()
    (root / PATH).write_bytes(data[: len(data) // 2])


def lower_one_in_backup(root: Path) -> None:
    lower_one(root)
    (root / PATH).replace(root / f"{PATH}.bak")


RIGHT = {"billing": {0: 5, 1: 6}, "audit": {0: 2, 1: 9}, "gone": {}}


async def fill(start_broker: StartBroker, root: Path, *, has_image: bool) -> None:
    """Two groups; one was reset, one was deleted, and made again with its settings."""
    broker = await start_broker(root=root)
    for queue_id in range(2):
        await broker.send_bodies("t", queue_id, *(b"%d" % number for number in range(10)))
    await commit(broker, "billing", 0, 3)
    await commit(broker, "audit", 1, 9)
    await commit(broker, "gone", 0, 7)
    await broker.stop()
    shutil.copy(root / PATH, root / "older")

    broker = await start_broker(root=root)
    await until(lambda: broker.feature(Progress).journal.is_ready)
    await commit(broker, "audit", 0, 8)
    await commit(broker, "billing", 1, 4)
    await broker.feature(Progress).offsets.reset(GroupQueue("audit", "t", 0), 1)
    await broker.feature(Progress).removal.delete_group("gone", force=True, timeout_s=10)
    if has_image:
        journal = broker.feature(Progress).journal
        assert not await journal.prepare_removal(broker.store.appended_end, _nothing)
    await commit(broker, "billing", 0, 5)
    await commit(broker, "billing", 1, 6)
    await commit(broker, "audit", 0, 2)
    assert await offsets(broker, *RIGHT) == RIGHT
    await broker.stop()


async def _nothing() -> None: ...


@pytest.mark.parametrize("has_image", [False, True])
@pytest.mark.parametrize(
    ("damage", "taken"),
    [
        (lose_group, {("billing", 0, None, 5), ("billing", 1, None, 6)}),
        (lose_queue, {("billing", 0, None, 5)}),
        (lower_one, {("billing", 1, 2, 6)}),
        (lower_one_in_backup, {("billing", 1, 2, 6)}),
        (
            lose_everything,
            {(group, each, None, at) for group, all_ in RIGHT.items() for each, at in all_.items()},
        ),
        (put_back_older, set()),
        (lose_file, set()),
        (lose_both, set()),
        (tear_file, set()),
        (lambda root: None, set()),
    ],
)
async def test_what_a_table_lacks_is_taken_from_the_journal(
    start_broker: StartBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
    taken: set[tuple[str, int, int | None, int]],
    has_image: bool,
) -> None:
    root = tmp_path / "store"
    await fill(start_broker, root, has_image=has_image)
    damage(root)
    caplog.clear()
    broker = await start_broker(root=root)
    assert await offsets(broker, *RIGHT) == RIGHT
    assert told(caplog) == taken
    await broker.stop()
    again = await start_broker(root=root)
    assert await offsets(again, *RIGHT) == RIGHT
    assert told(caplog) == taken, "once"


def told(caplog: pytest.LogCaptureFixture) -> set[tuple[str, int, int | None, int]]:
    found = set()
    for record in caplog.records:
        if (line := LINE.search(record.getMessage())) is not None:
            group, queue_id, before, offset = line.groups()
            found.add(
                (group, int(queue_id), None if before == "None" else int(before), int(offset))
            )
    return found


async def test_reading_the_journal_again_deletes_no_settings_of_a_group_that_was_made_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    await fill(start_broker, root, has_image=False)
    broker = await start_broker(root=root)
    await until(lambda: broker.feature(Progress).journal.is_ready)
    await commit(broker, "gone", 1, 2)
    broker.opened.groups.put(SubscriptionGroupConfig(name="gone", retry_times_max=3))
    await broker.stop()
    lose_group(root)
    again = await start_broker(root=root)
    assert await offsets(again, "gone", "billing") == {"gone": {1: 2}, "billing": RIGHT["billing"]}
    kept = again.opened.groups.get("gone")
    assert kept is not None
    assert kept.retry_times_max == 3


KEYS = [GroupQueue("billing", "t", each) for each in range(2)]
CHANGES = st.builds(
    Change,
    st.sampled_from((ChangeKind.COMMIT, ChangeKind.COMMIT, ChangeKind.RESET)),
    st.integers(0, 9),
    st.integers(0, 3),
)
ENTRIES = st.one_of(
    st.builds(OffsetEntry, st.sampled_from(KEYS), CHANGES, st.just(1)),
    st.builds(OffsetEntry, st.sampled_from(KEYS), CHANGES, st.just(1)),
    st.just(OffsetsRemoved("billing", None, None, 1)),
)


@settings(max_examples=examples(100))
@given(st.lists(ENTRIES, max_size=12), st.lists(st.integers(0, 9) | st.none(), min_size=2))
@example(
    [
        OffsetEntry(KEYS[0], Change(ChangeKind.COMMIT, 9, 1), 1),
        OffsetEntry(KEYS[0], Change(ChangeKind.COMMIT, 5, 2), 1),
    ],
    [3, None],
)
def test_the_journal_makes_any_table_right_whose_offsets_were_lowered(
    entries: list[OffsetEntry | OffsetsRemoved], lowered: list[int | None]
) -> None:
    right = ConsumerOffsetTable()
    state = OffsetJournalState(right, journal_end=0)
    for number, entry in enumerate(entries):
        state.apply([entry], number)
    document = json.loads(right.snapshot_bytes(1))
    offsets = document["offsetTable"].get("t@billing", {})
    for queue_id, offset in enumerate(lowered[:2]):
        before = offsets.pop(str(queue_id), None)
        if before is not None and offset is not None:
            offsets[str(queue_id)] = min(offset, before)
    changed = ConsumerOffsetTable.load(json.dumps(document).encode())
    changed.doubt(JournalMark(), len(entries))
    again = OffsetJournalState(changed, journal_end=len(entries))
    for number, entry in enumerate(entries):
        again.apply([entry], number)
    assert [again.standing(key) for key in KEYS] == [state.standing(key) for key in KEYS]


def test_a_table_says_whether_it_is_as_it_was_written() -> None:
    table = ConsumerOffsetTable()
    table.commit("billing", "t", 0, 5)
    data = table.snapshot_bytes(1)
    assert ConsumerOffsetTable.load(data).is_as_written
    assert not ConsumerOffsetTable.load(data.replace(b"5", b"4", 1)).is_as_written
    apaches = json.loads(data)
    del apaches["aerobeeJournal"]
    assert ConsumerOffsetTable.load(json.dumps(apaches).encode()).is_as_written
