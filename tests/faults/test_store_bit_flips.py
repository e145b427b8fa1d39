"""One bit that is not what was written, in each kind of file: what the next start makes of it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aerobee.broker.groups.run_record import RunRecord
from aerobee.runtime.errors import AerobeeError, InvalidArgument
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.queues.reading import GetStatus
from aerobee.store.engine.read_work import ReadWork
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.record import MAGIC_BLANK, iterate_records
from aerobee.store.format.record_layout import BODY_AT, RecordCorrupt
from aerobee.store.repair.verify import verify_store
from tests.faults.folders import (
    CONFIG,
    MESSAGES,
    RUNS,
    Folder,
    check_folder,
    check_messages,
    make_folder,
    places,
)
from tests.support.stores import locate

pytestmark = [pytest.mark.slow, pytest.mark.many_files]

PLACES = 12


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return make_folder(tmp_path_factory.mktemp("made") / "closed")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return make_folder(tmp_path_factory.mktemp("made") / "running", crashed=True)


Copies = Callable[[Folder], Folder]


@pytest.fixture
def copy(tmp_path: Path) -> Copies:
    """Copies of a folder, each under a name of its own."""
    count = iter(range(1_000_000))
    return lambda folder: folder.copy_to(tmp_path / str(next(count)))


def flipped(folder: Folder, name: str, copy: Copies, seed: int = 1) -> Iterator[tuple[Folder, int]]:
    """Copies of the folder with one bit changed somewhere in the file, and where."""
    chance = random.Random(seed)
    for position in places(folder.path(name).read_bytes(), chance, PLACES):
        damaged = copy(folder)
        damaged.flip(name, position, chance.randrange(8))
        yield damaged, position


def refusal_of(folder: Folder) -> str:
    """Why a start is refused; empty if it is not."""
    try:
        folder.open().store.close()
    except InvalidArgument as error:
        return str(error)
    return ""


# ------------------------------------------------------------------------------ the log


def test_in_a_sealed_segment_it_hurts_nobody_until_it_is_read_and_then_the_record_tells(
    closed: Folder, copy: Copies
) -> None:
    """The start does not read old segments; the record's checksum names the damaged body."""
    folder = copy(closed)
    name = "commitlog/00000000000000000000"
    folder.flip(name, BODY_AT + 20, 3)
    opened = folder.open()
    assert opened.store.recovery.clean
    located = locate(opened.store, "Orders", 0, 0, max_messages=2, max_bytes=4_000)
    first, second = iterate_records(opened.store.log.read(located.runs))
    with pytest.raises(RecordCorrupt, match="the body's CRC"):
        first.check()
    second.check()
    opened.store.close()


def records_of(folder: Folder, segment: int = -1) -> tuple[str, list[tuple[int, int]]]:
    """A segment's name (the active one's), and where its records lie: (position, size)."""
    path = sorted(folder.path("commitlog").iterdir())[segment]
    data = path.read_bytes()
    found = []
    at = 0
    while (size := int.from_bytes(data[at : at + 4], "big")) > 0:
        if int.from_bytes(data[at + 4 : at + 8], "big", signed=True) == MAGIC_BLANK:
            break
        found.append((at, size))
        at += size
    return f"commitlog/{path.name}", found


@pytest.mark.thorough
def test_in_the_unflushed_tail_the_log_ends_before_it(crashed: Folder, copy: Copies) -> None:
    """After a crash, in the last record: it was never promised, and the rest is untouched."""
    name, records = records_of(crashed)
    at, size = records[-1]
    cut = 0
    for position in range(at, at + size, 2):
        folder = copy(crashed)
        folder.flip(name, position, position % 8)
        opened = folder.open()
        end = opened.store.appended_end % CONFIG.segment_bytes
        if end == at:
            check_messages(opened, kept=MESSAGES - 1)
            cut += 1
        else:
            # A field of the header without a checksum, or a property: it is still a record.
            assert end == at + size
        opened.store.close()
    assert cut > size // 2 // 2


@pytest.mark.parametrize("left", ["closed", "crashed"])
def test_in_what_was_safely_on_disk_the_start_is_refused_with_file_and_position(
    request: pytest.FixtureRequest, copy: Copies, left: str
) -> None:
    """The checkpoint says how far the log was synced; after a clean stop all of it was."""
    folder = copy(request.getfixturevalue(left))
    checkpoint = Checkpoint.decode(folder.path("checkpoint").read_bytes())
    name, records = records_of(folder, checkpoint.confirm_physical_offset // CONFIG.segment_bytes)
    safe_bytes = checkpoint.confirm_physical_offset % CONFIG.segment_bytes
    at, _ = next(record for record in reversed(records) if sum(record) <= safe_bytes)
    before = folder.files()[name]
    folder.flip(name, at + BODY_AT + 3, 0)
    damaged = folder.files()
    with pytest.raises(InvalidArgument) as refused:
        folder.open()
    assert f"{name} is damaged at byte {at}" in str(refused.value)
    assert "Restore the segment from a copy" in str(refused.value)
    assert folder.files()[name] == damaged[name]
    # As the operator does who has a copy.
    folder.path(name).write_bytes(before)
    opened = folder.open()
    check_folder(opened)
    opened.store.close()


# ------------------------------------------------------------------------------ derived files


def queue_files(folder: Folder) -> list[str]:
    return sorted(name for name in folder.files() if name.startswith("consumequeue/Orders/0"))


@pytest.mark.parametrize("left", ["closed", "crashed"])
@pytest.mark.parametrize("start", ["index/", "consumequeue.ends"])
def test_in_the_index_or_the_list_of_queue_ends_no_message_is_touched(
    request: pytest.FixtureRequest, copy: Copies, left: str, start: str
) -> None:
    """The log says what is in the queues."""
    folder: Folder = request.getfixturevalue(left)
    name = max(name for name in folder.files() if name.startswith(start))
    for damaged, position in flipped(folder, name, copy):
        opened = damaged.open()
        check_folder(opened)
        opened.store.close()
        again = damaged.open()
        assert again.store.recovery.clean, (name, position)
        check_folder(again)
        again.store.close()


@pytest.mark.parametrize("which", [0, -1])
def test_in_a_queue_file_verify_names_it_and_the_log_replaces_it(
    closed: Folder, copy: Copies, which: int
) -> None:
    """A start compares with the log only what it walks: with many queues the rest would take too
    long."""
    name = queue_files(closed)[which]
    used = len(closed.path(name).read_bytes().rstrip(b"\0")) // 20 * 20
    for damaged, position in flipped(closed, name, copy):
        if position % 20 >= 12 or position >= used:
            continue  # the tag's code says only what is worth a look; past the end nobody looks
        verified = verify_store(RealDisk(damaged.root), CONFIG)
        assert not verified.is_sound
        assert any(finding.file == name for finding in verified.findings)
        shutil.rmtree(damaged.path(name).parent)
        opened = damaged.open()
        check_folder(opened)
        opened.store.close()


@pytest.mark.thorough
@pytest.mark.parametrize("reads_of", [(2, 1_000), (1_000, 2)])
def test_in_a_queue_file_readers_get_an_error_that_says_what_to_do_and_never_wrong_bytes(
    closed: Folder, copy: Copies, reads_of: tuple[int, int]
) -> None:
    """Every bit of an entry's offset and size, one at a time. The first read after a start goes to
    a thread, later ones find everything in memory."""
    name = queue_files(closed)[0]
    _, topic, queue_id, _ = name.split("/")
    whole = closed.open()
    expected = read_all(whole.store, topic, int(queue_id), reads_of)
    whole.store.close()
    folder = copy(closed)
    unseen = 0
    for bit in range(12 * 8):
        folder.flip(name, 3 * 20 + bit // 8, bit % 8)
        opened = folder.open()
        if opened.store.recovery.rebuilt_queues:  # the start saw it: another order of entries
            assert read_all(opened.store, topic, int(queue_id), reads_of) == expected
        else:
            unseen += 1
            with pytest.raises(AerobeeError, match=r"aerobee store|restart the broker"):
                read_all(opened.store, topic, int(queue_id), reads_of)
        opened.store.close()
        folder = copy(closed)
    assert unseen


def read_all(store: MessageStore, topic: str, queue_id: int, reads_of: tuple[int, int]) -> bytes:
    """The records of a queue, read twice, so many at a time."""
    bounds = store.queues.bounds(topic, queue_id)
    whole = []
    for messages_max in reads_of:
        offset = bounds.min_offset
        records = b""
        while offset < bounds.max_offset:
            wanted = QueueRead(topic, queue_id, offset, 1 << 20, messages_max)
            outcome = store.reads.read(wanted)
            if isinstance(outcome, ReadWork):
                outcome.run()
                outcome = store.reads.finish(wanted, outcome)
            assert outcome.located.status is GetStatus.FOUND
            records += outcome.records
            offset = outcome.located.next_offset
        whole.append(records)
    assert whole[0] == whole[1]
    return whole[0]


@pytest.mark.parametrize("left", ["closed", "crashed"])
@pytest.mark.parametrize("name", ["lock", "abort"])
def test_in_a_marker_it_means_nothing(
    request: pytest.FixtureRequest, copy: Copies, name: str, left: str
) -> None:
    folder: Folder = request.getfixturevalue(left)
    if not folder.path(name).exists():
        return
    for damaged, _ in flipped(folder, name, copy):
        opened = damaged.open()
        check_folder(opened)
        opened.store.close()


@pytest.mark.parametrize("left", ["closed", "crashed"])
def test_in_the_checkpoint_it_costs_time_or_a_refusal_but_no_message(
    request: pytest.FixtureRequest, copy: Copies, left: str
) -> None:
    """Apache's file has no checksum: an end of the log that lies too far may be believed. Without
    the checkpoint the whole log is read."""
    for damaged, position in flipped(request.getfixturevalue(left), "checkpoint", copy):
        refusal = refusal_of(damaged)
        if refusal:
            assert 32 <= position < 40, "only the confirmed end can make it refuse"
            assert "the log was whole up to" in refusal
            damaged.path("checkpoint").unlink()
        opened = damaged.open()
        check_folder(opened)
        opened.store.close()


# ------------------------------------------------------------------------------ tables


TABLES = ["config/topics.json", "config/subscriptionGroup.json", "config/consumerOffset.json"]


@pytest.mark.parametrize("left", ["closed", "crashed"])
@pytest.mark.parametrize("name", TABLES)
def test_in_a_table_that_can_be_read_no_more_its_backup_answers(
    request: pytest.FixtureRequest, copy: Copies, name: str, left: str
) -> None:
    """Apache's JSON has no checksum: a digit or a letter that became another is not noticed."""
    unnoticed = 0
    for damaged, _ in flipped(request.getfixturevalue(left), name, copy):
        opened = damaged.open()
        check_messages(opened)
        assert opened.topics.get("Orders") is not None or name == TABLES[0]
        unnoticed += damaged.files()[name] != damaged.files().get(f"{name}.bak")
        opened.store.close()
    assert unnoticed


@pytest.mark.parametrize("name", TABLES)
def test_in_a_backup_it_means_nothing(closed: Folder, copy: Copies, name: str) -> None:
    for damaged, _ in flipped(closed, f"{name}.bak", copy):
        opened = damaged.open()
        check_folder(opened)
        opened.store.close()


@pytest.mark.parametrize("left", ["closed", "crashed"])
def test_in_the_lease_file_no_lease_epoch_is_ever_given_twice(
    request: pytest.FixtureRequest, copy: Copies, left: str
) -> None:
    """The run number rises whatever happened, and who held what is not believed."""
    name = "config/queueLeases.json"
    folder: Folder = request.getfixturevalue(left)
    wanted = RunRecord.decode(folder.files()[name])
    noticed = 0
    for damaged, _ in flipped(folder, name, copy):
        opened = damaged.open()
        assert opened.this_run.run_number > RUNS
        if opened.previous_run != wanted:  # else white space became other white space
            assert not opened.previous_run.is_clean
            assert opened.previous_run.session_timeout_max_ms == 120_000
            noticed += 1
        check_folder(opened)
        opened.store.close()
    assert noticed > PLACES // 2
