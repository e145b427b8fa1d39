"""The key index of a store folder, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aerobee.broker.store.disk import Disk
from aerobee.broker.store.message_store import MessageStore
from aerobee.cli.json_stream import Members
from aerobee.cli.store_index_sizes import INDEX_DIRECTORY
from aerobee.cli.store_questions import ANSWERS_MAX, Questions
from aerobee.store_format.index_file import HEADER_SIZE, IndexHeader


def index_headers(disk: Disk) -> list[dict[str, Any]]:
    """The files' headers as they lie there."""
    headers = []
    for entry in disk.list(INDEX_DIRECTORY):
        if entry.is_directory or entry.size_bytes < HEADER_SIZE:
            continue
        file = disk.open_file(f"{INDEX_DIRECTORY}/{entry.name}", read_only=True)
        header = IndexHeader.decode(file.read_at(0, HEADER_SIZE))
        headers.append(
            {
                "name": entry.name,
                "beginTimestamp": header.begin_timestamp_ms,
                "endTimestamp": header.end_timestamp_ms,
                "beginPhysicalOffset": header.begin_physical_offset,
                "endPhysicalOffset": header.end_physical_offset,
                "usedSlots": header.used_slots,
                "count": header.count,
            }
        )
    return headers


def describe_index(store: MessageStore, questions: Questions) -> Members:
    """The section `index`: its files as recovered, and the answers to the questions.

    `physicalOffsets` are what the index says, newest first; `queryMessage` are the records that are
    still there and really have the key, oldest first.
    """
    return Members(
        {
            "files": [_file(header) for header in _recovered_headers(store)],
            "maxPerAnswer": ANSWERS_MAX,
            "answers": _answers(store, questions),
            "windows": _windows(store, questions),
        }.items()
    )


def _recovered_headers(store: MessageStore) -> list[IndexHeader]:
    return [info.header for info in store.index.files_with_pending()]


def _file(header: IndexHeader) -> dict[str, int]:
    return {
        "beginTimestamp": header.begin_timestamp_ms,
        "endTimestamp": header.end_timestamp_ms,
        "beginPhyOffset": header.begin_physical_offset,
        "endPhyOffset": header.end_physical_offset,
        "hashSlotCount": header.used_slots,
        "indexCount": header.count,
    }


def _answers(store: MessageStore, questions: Questions) -> Iterator[list[Any]]:
    for topic, key in questions.wanted_keys():
        search = store.index.plan_search(topic, key, max_results=ANSWERS_MAX)
        yield [topic, key, _each_once(search.run_raw())]


def _each_once(offsets: list[int]) -> list[int]:
    """A record that Apache's broker filed twice after a crash is one record."""
    return list(dict.fromkeys(offsets))


def _windows(store: MessageStore, questions: Questions) -> Iterator[dict[str, Any]]:
    for window in questions.windows():
        topic, key, begin_ms, end_ms, most = window
        search = store.index.plan_search(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, max_results=most
        )
        offsets = _each_once(search.run_raw())
        yield {
            **window._asdict(),
            "physicalOffsets": offsets,
            "queryMessage": sorted(each for each in offsets if each >= store.min_offset),
        }
