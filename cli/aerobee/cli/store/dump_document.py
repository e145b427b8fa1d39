"""A store folder as one document: what the log, each queue and the config files hold.

The folder is opened by the broker's own recovery, but for reading only: nothing is written, nothing
is locked, and a broker may be using it. Digests always cover everything, whatever is listed:
`recordsSha256` of the log is over all records in log order without blanks; a queue's is over its
records from minimum to maximum offset, `entriesSha256` over their 20-byte entries.

The document is made while it is written, so memory depends on the longest record and on the keys of
the listed messages, not on the store's size.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aerobee.cli.store.configs import describe_configs
from aerobee.cli.store.folder import OnProgress, StoreOptions, open_folder
from aerobee.cli.store.json_stream import Members, collected
from aerobee.cli.store.on_disk import LogOnDisk, describe_batch_queues, describe_state
from aerobee.cli.store.questions import ANSWERS_MAX, ChosenQuestions, Questions, QueueTimes
from aerobee.cli.store.timer import describe_timer
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.reading import GetStatus, out_of_range
from aerobee.store.engine.queues.time_search import Boundary
from aerobee.store.format.compression import decompress
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, unpack_entries
from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.property_crc import property_crc_matches
from aerobee.store.format.record import SYSFLAG_COMPRESSED, Record

_ENTRIES_PER_READ = 4_096
_READ_BYTES = 8 * 1024 * 1024
PROPERTY_CRC = "__CRC32#"
BODY_TEXT_BYTES_MAX = 96
"""Longer bodies are shown by length and digest only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpRequest:
    """What of a store is to be shown.

    `messages_every` n lists each n-th message of a queue and its last, 0 none; `topics` limits the
    queues and committed offsets to these topics, empty means all; `questions` are asked beside.
    """

    messages_every: int = 1
    topics: Collection[str] = ()
    questions: Questions = field(default_factory=ChosenQuestions)


def dump_store(
    path: Path | str,
    config_overrides: Mapping[str, str],
    request: DumpRequest | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """What the store in the folder `path` holds, ready for JSON and all in memory.

    Args:
        config_overrides: options under Apache's names; sizes not given are those of the files.

    Raises InvalidArgument for an option, StoreUnusable for a folder that is no store, or damaged.
    """
    with open_dump(path, config_overrides, request, on_progress=on_progress) as document:
        members: dict[str, Any] = collected(document)
    return members


@contextlib.contextmanager
def open_dump(
    path: Path | str,
    config_overrides: Mapping[str, str],
    request: DumpRequest | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> Iterator[Members]:
    """As `dump_store`, but to be gone through once: for `write_json`. Inside the block only.

    What is damaged in the log or unreadable in a config file is raised before the block begins.
    """
    root = Path(path)
    disk, options = open_folder(root, config_overrides)
    on_disk = describe_state(root, disk)
    configs = describe_configs(disk)
    if request is not None and request.topics:
        configs["consumerOffsets"] = {
            key: offsets
            for key, offsets in configs["consumerOffsets"].items()
            if key.partition("@")[0] in request.topics
        }
    store = MessageStore.open(disk, SystemClock(), options.config, read_only=True)
    try:
        progress = _Progress(store, on_progress)
        log = LogOnDisk(disk, store, check_crc=options.config.check_crc_on_recovery)
        for size in log.walk():
            progress.advance(size)
        on_disk |= {
            "commitLogSegments": log.segments,
            "commitLogRecords": log.records,
            "commitLogEnd": log.end,
        }
        dump = _Dump(disk, store, options, request or DumpRequest(), progress)
        yield dump.document(on_disk, configs, log.commit_log())
    finally:
        store.close()


class _Progress:
    """The log is read twice: once in its own order, once queue by queue."""

    def __init__(self, store: MessageStore, on_progress: OnProgress | None) -> None:
        self._total = 2 * (store.appended_end - store.min_offset)
        self._done = 0
        self._on_progress = on_progress

    def advance(self, size: int) -> None:
        self._done += size
        if self._on_progress is not None:
            self._on_progress(min(self._done, self._total), self._total)


class _Dump:
    """The parts of one document."""

    def __init__(
        self,
        disk: Disk,
        store: MessageStore,
        options: StoreOptions,
        request: DumpRequest,
        progress: _Progress,
    ) -> None:
        self._disk = disk
        self._store = store
        self._options = options
        self._every = request.messages_every
        self._wanted = frozenset(request.topics)
        self._questions = request.questions
        self._progress = progress

    def document(
        self, on_disk: dict[str, Any], configs: dict[str, Any], commit_log: dict[str, Any]
    ) -> Members:
        def members() -> Iterator[tuple[str, Any]]:
            yield "state", "crashed" if on_disk["abort"] else "clean"
            yield "listedEvery", self._every
            yield "config", self._options.as_broker_conf()
            yield "onDisk", on_disk
            yield from configs.items()
            yield "commitLog", commit_log
            yield "topics", Members(self._topics())
            if batch_queues := describe_batch_queues(self._disk):
                yield "batchQueues", batch_queues
            yield "index", Members(self._index())
            timer = describe_timer(self._disk, self._store, self._options.timer_log_bytes)
            yield "timer", Members(timer.items())

        return Members(members())

    def _topics(self) -> Iterator[tuple[str, Members]]:
        by_topic: dict[str, list[int]] = {}
        for topic, queue_id in self._store.queues.names():
            if not self._wanted or topic in self._wanted:
                by_topic.setdefault(topic, []).append(queue_id)
        for topic, queue_ids in by_topic.items():
            yield (
                topic,
                Members(
                    (str(queue_id), Members(self._queue(topic, queue_id))) for queue_id in queue_ids
                ),
            )

    def _queue(self, topic: str, queue_id: int) -> Iterator[tuple[str, Any]]:
        bounds = self._store.queues.bounds(topic, queue_id)
        yield "minOffset", bounds.min_offset
        yield "maxOffset", bounds.max_offset
        yield "maxPhysicalOffset", bounds.max_physical_offset
        times = self._questions.times(topic, queue_id, bounds.max_offset - bounds.min_offset)
        walk = _QueueWalk(self._store, topic, queue_id, self._progress)
        yield "messages", self._messages(walk, times)
        yield "entriesSha256", walk.entries_digest.hexdigest()
        yield "recordsSha256", walk.records_digest.hexdigest()
        offsets = self._questions.outside(topic, queue_id, (bounds.min_offset, bounds.max_offset))
        yield "outOfRange", [self._outside(topic, queue_id, offset) for offset in offsets]
        yield (
            "offsetByTime",
            [self._by_time(topic, queue_id, timestamp_ms) for timestamp_ms in times.asked()],
        )

    def _messages(self, walk: _QueueWalk, times: QueueTimes) -> Iterator[dict[str, Any]]:
        first, last = walk.bounds.min_offset, walk.bounds.max_offset - 1
        for offset, record, tags_code in walk:
            times.see(record.store_timestamp_ms)
            if self._every > 0 and (offset == last or (offset - first) % self._every == 0):
                message = describe_message(record, tags_code)
                self._questions.see_message(message)
                yield message

    def _outside(self, topic: str, queue_id: int, offset: int) -> dict[str, Any]:
        located = out_of_range(self._store.queues.bounds(topic, queue_id), offset)
        if located is None:  # a question that fits another store
            return {"offset": offset, "status": GetStatus.FOUND.value, "nextOffset": offset}
        return {"offset": offset, "status": located.status.value, "nextOffset": located.next_offset}

    def _by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> dict[str, int]:
        search = self._store.reads.plan_time_search(topic, queue_id)
        assert search is not None
        return {
            "timestamp": timestamp_ms,
            "lower": search.run(timestamp_ms, Boundary.LOWER),
            "upper": search.run(timestamp_ms, Boundary.UPPER),
        }

    def _index(self) -> Iterator[tuple[str, Any]]:
        """The key index as recovered, and its answers to the questions.

        `physicalOffsets` are what the index says, newest first; `queryMessage` are the records that
        are still there and really have the key, oldest first.
        """
        headers = [info.header for info in self._store.index.files_with_pending()]
        yield (
            "files",
            [
                {
                    "beginTimestamp": header.begin_timestamp_ms,
                    "endTimestamp": header.end_timestamp_ms,
                    "beginPhyOffset": header.begin_physical_offset,
                    "endPhyOffset": header.end_physical_offset,
                    "hashSlotCount": header.used_slots,
                    "indexCount": header.count,
                }
                for header in headers
            ],
        )
        yield "maxPerAnswer", ANSWERS_MAX
        yield "answers", self._answers()
        yield "windows", self._windows()

    def _answers(self) -> Iterator[list[Any]]:
        for topic, key in self._questions.wanted_keys():
            yield [topic, key, self._offsets(topic, key, most=ANSWERS_MAX)]

    def _windows(self) -> Iterator[dict[str, Any]]:
        for window in self._questions.windows():
            topic, key, begin_ms, end_ms, most = window
            offsets = self._offsets(topic, key, most=most, begin_ms=begin_ms, end_ms=end_ms)
            yield {
                **window._asdict(),
                "physicalOffsets": offsets,
                "queryMessage": sorted(each for each in offsets if each >= self._store.min_offset),
            }

    def _offsets(self, topic: str, key: str, *, most: int, **bounds_ms: int) -> list[int]:
        """A record that Apache's broker filed twice after a crash is one record."""
        search = self._store.index.plan_search(topic, key, max_results=most, **bounds_ms)
        return list(dict.fromkeys(search.run_raw()))


class _QueueWalk:
    """A queue's records from minimum to maximum; the digests are complete at its end."""

    def __init__(self, store: MessageStore, topic: str, queue_id: int, progress: _Progress) -> None:
        self._store = store
        self._topic = topic
        self._queue_id = queue_id
        self._progress = progress
        self.bounds = store.queues.bounds(topic, queue_id)
        self.entries_digest = hashlib.sha256()
        self.records_digest = hashlib.sha256()

    def __iter__(self) -> Iterator[tuple[int, Record, int]]:
        """(queue offset, record, tags code of its entry)."""
        offset = self.bounds.min_offset
        while offset < self.bounds.max_offset:
            wanted = min(_ENTRIES_PER_READ, self.bounds.max_offset - offset)
            entries = self._store.queues.read_entries(self._topic, self._queue_id, offset, wanted)
            if not entries:
                raise StoreUnusable(
                    f"the queue {self._topic}/{self._queue_id} has no entry at offset {offset}; "
                    "its files are damaged: start a broker on a copy of the folder, which rebuilds "
                    "them"
                )
            self.entries_digest.update(entries)
            for record, tags_code in self._records(entries):
                self.records_digest.update(record.raw)
                yield offset, record, tags_code
                self._progress.advance(record.size)
                offset += 1

    def _records(self, entries: bytes) -> Iterator[tuple[Record, int]]:
        """The records that the entries point to, each with its tags code; read many at a time."""
        positions, sizes, tags_codes = (column.tolist() for column in unpack_entries(entries))
        first = 0
        while first < len(entries) // ENTRY_SIZE:
            end = first + 1
            total = sizes[first]
            while end < len(sizes) and total + sizes[end] <= _READ_BYTES:
                total += sizes[end]
                end += 1
            data = self._store.log.read(
                list(zip(positions[first:end], sizes[first:end], strict=True))
            )
            at = 0
            for index in range(first, end):
                record = Record(data, at, at + sizes[index])
                yield record, tags_codes[index]
                at += sizes[index]
            first = end


def describe_message(record: Record, tags_code: int) -> dict[str, Any]:
    """The record's fields. Text that is not UTF-8 is shown with U+FFFD; the digests are exact."""
    properties = record.properties
    body = record.body
    message: dict[str, Any] = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.size,
        "version": record.version,
        "tagsCode": tags_code,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": str(record.born_host),
        "storeTimestamp": record.store_timestamp_ms,
        "storeHost": str(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCrc": record.body_crc,
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
    }
    if record.sys_flag & SYSFLAG_COMPRESSED:
        message.update(_plain_body(body, record.sys_flag))
    elif 0 < len(body) <= BODY_TEXT_BYTES_MAX:
        message.update(_body_text(body))
    message["tags"] = properties.get("TAGS")
    message["keys"] = properties.get("KEYS")
    message["uniqKey"] = properties.get("UNIQ_KEY")
    message["offsetMsgId"] = offset_message_id(record.store_host, record.physical_offset)
    message["properties"] = {name: properties[name] for name in sorted(properties)}
    if not _property_crc_is_sound(record):
        message["propertyCrcProblem"] = "the record is not the one that was written"
    return message


def _property_crc_is_sound(record: Record) -> bool:
    """Whether the CRC over the whole record, if it carries one, is that of its bytes."""
    if PROPERTY_CRC not in record.properties:
        return True
    data = record.raw
    properties_start = len(data) - len(record.properties_bytes)
    return property_crc_matches(data, 0, properties_start, len(data)) is not False


def _plain_body(body: bytes, sys_flag: int) -> dict[str, Any]:
    try:
        plain = decompress(body, sys_flag)
    except ValueError as error:
        return {"plainBodyProblem": str(error)}
    return {
        "plainBodyLength": len(plain),
        "plainBodySha256": hashlib.sha256(plain).hexdigest(),
    }


def _body_text(body: bytes) -> dict[str, str]:
    try:
        return {"bodyText": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {}
