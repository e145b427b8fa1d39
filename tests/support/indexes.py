"""What a store's key index must return, computed from the records of its log one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.index.index_files import index_path
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.index_file import IndexGeometry, IndexHeader
from aerobee.store.format.index_keys import record_keys
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import Record
from tests.support.plain_index import PlainIndex
from tests.support.stores import SMALL, batch_with, find_by_key, log_records

GEOMETRY = IndexGeometry(7, 12)
INDEXED = replace(SMALL, index_slots_max=GEOMETRY.slots, index_entries_max=GEOMETRY.entries)


def append_keys(
    store: MessageStore, topic: str, *keys: str, sys_flag: int = 0, confirm: bool = True
) -> Appended:
    """One batch with a record for each of `keys`: the unique key, then others after spaces."""
    properties = []
    for text in keys:
        unique, _, several = text.partition(" ")
        pairs = {"UNIQ_KEY": unique, "KEYS": several}
        properties.append(
            encode_properties({name: value for name, value in pairs.items() if value})
        )
    batch = batch_with(topic, properties, sys_flag=sys_flag)
    appended = store.append(batch, queue_id=0)
    if confirm:
        store.confirm(store.appended_end)
    return appended


def plain_index(records: Sequence[Record], geometry: IndexGeometry = GEOMETRY) -> PlainIndex:
    """The index of these records, filed in this order."""
    plain = PlainIndex(geometry.slots, geometry.entries)
    for record in records:
        if record.sys_flag & 0xC != 0xC:
            for key in record_keys(record.properties_bytes):
                plain.put(record.topic, key, record.physical_offset, record.store_timestamp_ms)
    return plain


def topic_keys(records: Sequence[Record]) -> list[tuple[str, str]]:
    found = {
        (record.topic, key): None
        for record in records
        for key in record_keys(record.properties_bytes)
    }
    return [*found, ("A", "never sent")]


def check_answers(store: MessageStore) -> None:
    """Every key of the log is found as in the plain index, without and with a time."""
    records = log_records(store)
    plain = plain_index(records)
    times = [record.store_timestamp_ms for record in records] or [0]
    begin_ms, end_ms = times[len(times) // 3], times[-len(times) // 3]
    for topic, key in topic_keys(records):
        search = store.index.plan_search(topic, key, max_results=1_000)
        expected = plain.search(topic, key, most=1_000)
        assert search.run_raw() == expected
        assert search.run() == list(dict.fromkeys(expected))
        window = store.index.plan_search(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, max_results=3
        )
        assert window.run_raw() == plain.search(topic, key, begin_ms, end_ms, 3)
        query = find_by_key(store, topic, key)
        mine = [
            record.raw
            for record in reversed(records)
            if record.topic == topic
            and key in record_keys(record.properties_bytes)
            and record.sys_flag & 0xC != 0xC
        ]
        assert query == mine
    assert store.index.indexed_end == store.appended_end


def check_files(store: MessageStore, disk: Disk, config: StoreConfig = INDEXED) -> None:
    """The files have the bytes that inserting one key after another would produce."""
    geometry = IndexGeometry(config.index_slots_max, config.index_entries_max)
    plain = plain_index(log_records(store), geometry)
    files = store.index.files()
    assert [info.header.count for info in files] == [file.count for file in plain.files]
    for info, file in zip(files, plain.files, strict=True):
        content = disk.read_file(index_path(info.name))
        assert len(content) == geometry.file_bytes
        assert IndexHeader.decode(content) == info.header
        used = geometry.entry_at(file.count)
        # Bytes after the last entry have no meaning.
        assert content[:used] == file.encode()[:used]
    names = [info.name for info in files]
    assert names == sorted(set(names))
    assert [entry.name for entry in disk.list("index")] == names


def index_folder(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir()) if (root / "index").is_dir() else []
