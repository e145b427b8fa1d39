"""A topic that ended is empty for good: a later one of its name begins at 0 on every replica, after
whatever end of the process, and when everything derived is built from the log again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.queue_ends import QUEUE_ENDS_FILE
from aerobee.store.engine.queues.reading import QueueBounds
from aerobee.store.format.batch import BatchLimits, number_batch
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.repair.findings import Finding, Kind, Severity
from tests.support.damaged_stores import repair, verify
from tests.support.replicas import log_bytes
from tests.support.stores import (
    SMALL,
    append,
    batch_of,
    check_agreement,
    crashed_copy,
    end_topic,
    flush,
    open_store,
    read_queue,
)

SMALL_FILES = replace(SMALL, consume_queue_entries_per_file=3, checkpoint_interval_ms=1)


def grown(root: Path, config: StoreConfig = SMALL_FILES) -> MessageStore:
    """A store in which a topic of two queues lived, ended, and lives again beside another one."""
    clock = ManualClock()
    store = open_store(root, config, clock)
    append(store, "Orders", 0, *[b"old"] * 10)
    append(store, "Other", 0, b"other")
    append(store, "Orders", 1, b"old too")
    clock.advance_ms(10)
    flush(store)
    end_topic(store, "Orders")
    append(store, "Orders", 0, b"new", b"new 2")
    clock.advance_ms(10)
    return store


def check_grown(store: MessageStore) -> None:
    assert read_queue(store, "Orders", 0) == [b"new", b"new 2"]
    assert store.queues.bounds("Orders", 1) == QueueBounds(0, 0)
    assert read_queue(store, "Other", 0) == [b"other"]
    check_agreement(store)


def queue_files(root: Path, topic: str) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob(f"consumequeue/{topic}/*/*"))


def test_a_topic_that_ended_begins_at_0_again(tmp_path: Path) -> None:
    store = grown(tmp_path)
    check_grown(store)
    assert append(store, "Orders", 1, b"another").base_queue_offset == 0
    assert store.queues.names() == [
        ("AEROBEE_OFFSET_JOURNAL", 0),
        ("Orders", 0),
        ("Orders", 1),
        ("Other", 0),
    ]


def test_a_checkpoint_that_is_repeated_does_not_remove_the_files_of_the_topics_new_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ended in between would find its list of queues without their files."""
    store = grown(tmp_path)
    store.queues.take_write_out().run(Checkpoint())  # and then the disk was full
    of_new_life = queue_files(tmp_path, "Orders")
    removed: list[str] = []
    monkeypatch.setattr(RealDisk, "remove", lambda disk, path: removed.append(path))
    store.queues.take_write_out().run(Checkpoint())
    assert of_new_life == queue_files(tmp_path, "Orders") != []
    assert removed == []


def test_the_files_of_its_queues_go_with_the_next_checkpoint(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, SMALL_FILES, clock)
    append(store, "Orders", 0, *[b"old"] * 10)
    append(store, "Other", 0, b"other")
    clock.advance_ms(10)
    flush(store)
    assert len(queue_files(tmp_path, "Orders")) == 4
    end_topic(store, "Orders")
    clock.advance_ms(10)
    flush(store)
    assert len(queue_files(tmp_path, "Orders")) == 4, "nobody confirmed the end yet"
    store.confirm(store.appended_end)
    append(store, "Orders", 0, b"new")
    clock.advance_ms(10)
    flush(store)
    assert queue_files(tmp_path, "Orders") == [f"consumequeue/Orders/0/{0:020d}"]
    assert len(queue_files(tmp_path, "Other")) == 1
    assert read_queue(store, "Orders", 0) == [b"new"]


def test_what_was_appended_before_the_end_and_is_confirmed_after_it_stays_unseen(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    for body in (b"1", b"2"):
        store.append(batch_of("Orders", body), queue_id=0)
    before = store.appended_end
    end_topic(store, "Orders")
    store.append(batch_of("Orders", b"3"), queue_id=0)
    store.confirm(before)
    assert store.queues.bounds("Orders", 0) == QueueBounds(0, 0)
    store.confirm(store.appended_end)
    assert read_queue(store, "Orders", 0) == [b"3"]
    check_agreement(store)


def closed(store: MessageStore, root: Path, tmp_path: Path) -> Path:
    store.close()
    return root


def killed(store: MessageStore, root: Path, tmp_path: Path) -> Path:
    return crashed_copy(root, tmp_path / "killed")


def killed_after_a_checkpoint(store: MessageStore, root: Path, tmp_path: Path) -> Path:
    flush(store)
    return crashed_copy(root, tmp_path / "killed")


def without_list(store: MessageStore, root: Path, tmp_path: Path) -> Path:
    root = killed_after_a_checkpoint(store, root, tmp_path)
    (root / QUEUE_ENDS_FILE).unlink()
    return root


def without_derived_files(store: MessageStore, root: Path, tmp_path: Path) -> Path:
    store.close()
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index", ignore_errors=True)
    return root


@pytest.mark.parametrize(
    "ending", [closed, killed, killed_after_a_checkpoint, without_list, without_derived_files]
)
@pytest.mark.parametrize("read_only", [False, True])
def test_it_is_as_empty_after_the_next_start(tmp_path: Path, ending, read_only: bool) -> None:  # type: ignore[no-untyped-def]
    root = ending(grown(tmp_path / "store"), tmp_path / "store", tmp_path)
    store = open_store(root, SMALL_FILES, read_only=read_only)
    check_grown(store)
    if not read_only:
        assert append(store, "Orders", 1, b"another").base_queue_offset == 0
        store.close()
        check_agreement(open_store(root, SMALL_FILES))


def test_a_topic_can_end_again_and_again(tmp_path: Path) -> None:
    store = open_store(tmp_path, SMALL_FILES)
    for life in range(5):
        append(store, "Orders", 0, *[b"%d" % life] * (7 - life))
        end_topic(store, "Orders")
        if life % 2:
            flush(store)
    append(store, "Orders", 0, b"last")
    store.close()
    store = open_store(tmp_path, SMALL_FILES)
    assert read_queue(store, "Orders", 0) == [b"last"]
    check_agreement(store)


def test_a_producers_numbers_count_anew(tmp_path: Path) -> None:
    """A batch that is sent again to the next life of a topic is not taken for stored."""
    store = open_store(tmp_path)
    batch = batch_of("Orders", b"1", b"2")
    number_batch(batch, [ProducerRun(7, 1, 2)])
    store.append(batch, queue_id=0)
    assert store.producers.standing("Orders", 0, 7, 1, 2).stored_count == 2
    end_topic(store, "Orders")
    assert store.producers.standing("Orders", 0, 7, 1, 2).stored_count == 0
    store.close()
    store = open_store(tmp_path)
    assert store.producers.standing("Orders", 0, 7, 1, 2).stored_count == 0


# ---------------------------------------------------------------------------------- replicas


@pytest.mark.parametrize("chunk_bytes", [100, 1 << 20])
@pytest.mark.parametrize("confirms_each", [False, True])
def test_a_replica_follows(tmp_path: Path, chunk_bytes: int, confirms_each: bool) -> None:
    master = grown(tmp_path / "master")
    slave = open_store(tmp_path / "slave", SMALL_FILES)
    slave.replicated.begin()
    data = log_bytes(master)
    for start in range(0, len(data), chunk_bytes):
        slave.replicated.append(start, data[start : start + chunk_bytes])
        if confirms_each:
            slave.confirm(slave.appended_end)
            flush(slave)
    slave.confirm(slave.appended_end)
    check_grown(slave)
    # As master it goes on where that one would.
    assert append(slave, "Orders", 0, b"3").base_queue_offset == 2
    assert append(slave, "Orders", 1, b"1").base_queue_offset == 0
    slave.close()
    check_agreement(open_store(tmp_path / "slave", SMALL_FILES))


def test_a_replica_that_was_away_meanwhile_catches_up(tmp_path: Path) -> None:
    master = open_store(tmp_path / "master", SMALL_FILES)
    append(master, "Orders", 0, *[b"old"] * 10)
    slave = open_store(tmp_path / "slave", SMALL_FILES)
    slave.replicated.append(0, log_bytes(master))
    slave.confirm(slave.appended_end)
    slave.close()
    end_topic(master, "Orders")
    append(master, "Orders", 0, b"new")
    slave = open_store(tmp_path / "slave", SMALL_FILES)
    position = slave.replicated.begin()
    slave.replicated.append(position, log_bytes(master)[position:])
    slave.confirm(slave.appended_end)
    assert read_queue(slave, "Orders", 0) == [b"new"]
    check_agreement(slave)


def test_what_a_master_said_of_emptied_queues_before_the_end_does_not_count(tmp_path: Path) -> None:
    master = grown(tmp_path / "master")
    slave = open_store(tmp_path / "slave", SMALL_FILES)
    slave.replicated.begin()
    slave.replicated.append(0, log_bytes(master))
    slave.replicated.begin_queues({("Orders", 1): 11, ("Gone", 0): 5})
    slave.confirm(slave.appended_end)
    assert slave.queues.bounds("Orders", 1) == QueueBounds(0, 0)
    assert slave.queues.bounds("Gone", 0).max_offset == 5


def test_the_limits_of_a_batch_hold_for_the_record_of_an_end() -> None:
    """The longest name that a topic may have fits."""
    from tests.support.stores import topic_end_batch

    assert topic_end_batch("T" * 255).size < BatchLimits().batch_bytes_max


# ---------------------------------------------------------------------------------- tools


def findings_of(root: Path) -> list[Finding]:
    found = verify(root, SMALL_FILES).findings
    return [each for each in found if each.severity is not Severity.NOTE]


@pytest.mark.parametrize("new_messages", [0, 2, 15])
def test_the_verification_finds_nothing_wrong_with_it(tmp_path: Path, new_messages: int) -> None:
    """Neither at rest nor at any moment of a life that ends in between."""
    root, clock = tmp_path / "store", ManualClock()
    store = open_store(root, SMALL_FILES, clock)
    append(store, "Orders", 0, *[b"old"] * 10)
    append(store, "Orders", 1, b"old too")
    clock.advance_ms(10)
    flush(store)
    end_topic(store, "Orders")
    store.confirm(store.appended_end)
    if new_messages:
        append(store, "Orders", 0, *[b"new"] * new_messages)
    for number in range(2):
        assert findings_of(crashed_copy(root, tmp_path / f"killed-{number}")) == []
        clock.advance_ms(10)
        flush(store)
    store.close()
    assert findings_of(root) == []


def test_a_repair_builds_only_the_last_life_again(tmp_path: Path) -> None:
    grown(tmp_path).close()
    (tmp_path / queue_files(tmp_path, "Orders")[0]).unlink()
    assert [each.kind for each in findings_of(tmp_path)] == [Kind.QUEUE_SHORT]
    repair(tmp_path, config=SMALL_FILES)
    assert findings_of(tmp_path) == []
    check_grown(open_store(tmp_path, SMALL_FILES))
