"""Queues that only Apache's broker fills: recovery keeps them, and brings back what it can."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.store.engine.config import StoreConfig
from aerobee.store.format.consume_queue_entry import unpack_entries
from tests.support.stores import SMALL, append, batch_of, check_agreement, open_store, read_queue

LIGHT = "%LMQ%room"
INNER_BATCH = 0x80
LAZY = replace(SMALL, queue_checks_at_start_max=0)


@pytest.fixture
def multi(tmp_path: Path) -> Path:
    """Five messages that are also in a light queue, from its offset 0 on, as Apache leaves them."""
    store = open_store(tmp_path)
    for number in range(5):
        properties = {
            "INNER_MULTI_DISPATCH": f"{LIGHT},%LMQ%other",
            "INNER_MULTI_QUEUE_OFFSET": f"{number},{number * 7}",
        }
        store.append(batch_of("Chat", b"%d" % number, properties=properties), queue_id=3)
        append(store, "Orders", 0, b"between")
    store.confirm(store.appended_end)
    store.close()
    return tmp_path


def leave_as_apache_would(root: Path) -> None:
    """No list of ends, and a recovery that walks the whole log."""
    (root / "consumequeue.ends").unlink()
    (root / "checkpoint").unlink()
    (root / "abort").touch()


def test_light_queues_are_built_again_from_the_log(multi: Path) -> None:
    shutil.rmtree(multi / "consumequeue")
    leave_as_apache_would(multi)
    store = open_store(multi)
    assert store.queues.bounds(LIGHT, 0).max_offset == 5
    own = store.queues.read_entries("Chat", 3, 0, 5)
    assert store.queues.read_entries(LIGHT, 0, 0, 5) == own
    assert read_queue(store, "Chat", 3) == [b"%d" % number for number in range(5)]
    store.close()
    assert (multi / "consumequeue" / LIGHT / "0" / f"{0:020d}").exists()


@pytest.mark.parametrize("config", [SMALL, LAZY], ids=["looking", "lazy"])
def test_a_light_queue_is_neither_damaged_nor_lost(multi: Path, config: StoreConfig) -> None:
    shutil.rmtree(multi / "consumequeue")
    leave_as_apache_would(multi)
    open_store(multi).close()
    entries = unpack_entries((multi / "consumequeue" / LIGHT / "0" / f"{0:020d}").read_bytes())
    for _ in range(3):
        store = open_store(multi, config)
        assert store.recovery.rebuilt_queues == ()
        assert store.queues.bounds(LIGHT, 0).max_offset == 5
        append(store, "Orders", 0, b"more")
        store.close()
    (multi / "consumequeue.ends").unlink()
    (multi / "abort").touch()
    store = open_store(multi, config)
    assert store.recovery.rebuilt_queues == ()
    found = unpack_entries(store.queues.read_entries(LIGHT, 0, 0, 5))
    assert [column[:5].tolist() for column in entries] == [column.tolist() for column in found]


def test_a_light_queue_that_lags_behind_the_log_is_completed(multi: Path) -> None:
    shutil.rmtree(multi / "consumequeue")
    leave_as_apache_would(multi)
    open_store(multi).close()
    path = multi / "consumequeue" / LIGHT / "0" / f"{0:020d}"
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + bytes(len(whole) - 60))
    leave_as_apache_would(multi)
    store = open_store(multi)
    assert store.queues.read_entries(LIGHT, 0, 0, 5) == whole[:100]


@pytest.mark.parametrize(
    ("names", "offsets"),
    [(LIGHT, ""), (LIGHT, "x"), (f"{LIGHT},{LIGHT}2", "1"), ("Plain", "0"), ("%LMQ%a/b", "0")],
)
def test_properties_that_name_no_light_queue_are_passed_over(
    tmp_path: Path, names: str, offsets: str
) -> None:
    store = open_store(tmp_path)
    properties = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    store.append(batch_of("Chat", b"a", properties=properties), queue_id=0)
    store.confirm(store.appended_end)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    leave_as_apache_would(tmp_path)
    store = open_store(tmp_path)
    assert store.queues.names() == [("Chat", 0)]
    check_agreement(store)


@pytest.mark.parametrize("queue_type", ["BatchCQ", "SimpleCQ"])
def test_inner_batches_of_batch_topics_stay_out_of_ordinary_queues(
    tmp_path: Path, queue_type: str
) -> None:
    store = open_store(tmp_path)
    store.append(batch_of("Bulk", b"inner", sys_flag=INNER_BATCH | 0x40), queue_id=0)
    store.append(batch_of("Orders", b"inner", sys_flag=INNER_BATCH | 0x40), queue_id=0)
    append(store, "Orders", 0, b"plain")
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    leave_as_apache_would(tmp_path)
    kept = tmp_path / "batchconsumequeue/Bulk/0" / f"{0:020d}"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"as Apache left it")
    (tmp_path / "config").mkdir()
    table = {"Bulk": {"topicName": "Bulk", "attributes": {"queue.type": queue_type}}}
    (tmp_path / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    store = open_store(tmp_path)
    is_batch = queue_type == "BatchCQ"
    assert store.queues.bounds("Bulk", 0).max_offset == (0 if is_batch else 1)
    assert read_queue(store, "Orders", 0) == [b"inner", b"plain"]
    store.close()
    assert kept.read_bytes() == b"as Apache left it"
    assert (tmp_path / "consumequeue/Bulk").exists() != is_batch
