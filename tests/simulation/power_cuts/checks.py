"""What must hold of a store when it is reopened, whatever happened to it."""

from __future__ import annotations

from aerobee.runtime.clock import Clock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.atomic_file import read_with_backup
from aerobee.store.engine.tables.config_tables import TOPICS_PATH, TopicTable
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.testing.simulated_disk import SimulatedDisk
from tests.simulation.judge import Judge, Violation, expect
from tests.simulation.power_cuts.model import UNIQUE_KEY_PREFIX, Model, Sent
from tests.simulation.power_cuts.raw_files import check_queue_files_are_whole
from tests.support.stores import check_agreement, find_by_key, log_records

JUDGE = Judge()
_LAST_RECORDS = 5
# Files whose bytes a second start must not change.
_LASTING = ("commitlog/", "consumequeue/", "index/")


def check_opened(store: MessageStore, model: Model) -> None:
    """The log has what was appended, from its beginning to at least what was acknowledged, each
    record once, in order, byte for byte; queues and other derived files have exactly that."""
    expect(
        store.appended_end >= model.acknowledged_end,
        f"the log ends at {store.appended_end}, but up to {model.acknowledged_end} was "
        "acknowledged",
    )
    expect(
        not model.was_killed or model.lost_cache or store.appended_end >= model.appended_end,
        f"the process was killed at {model.appended_end}, but the log ends at {store.appended_end}",
    )
    expect(
        store.min_offset in model.min_offsets,
        f"the log begins at {store.min_offset}, not at one of {model.min_offsets}",
    )
    records = log_records(store)
    wanted = [sent for sent in model.sent + model.doubtful if store.min_offset <= sent.start]
    for record, sent in zip(records, wanted, strict=False):
        expect(
            record.physical_offset == sent.start and bytes(record.raw) == sent.data,
            f"the record at {record.physical_offset} is not the one appended: {sent}",
        )
    expect(len(records) <= len(wanted), f"{len(records) - len(wanted)} records out of thin air")
    for sent in wanted[len(records) :]:
        JUDGE.keeps(sent.end > model.acknowledged_end, sent)
    expect(
        store.flushed_end == store.confirmed_end == store.appended_end,
        "what recovery found is not all confirmed and flushed",
    )
    model.cut(store.appended_end)
    model.min_offsets = [store.min_offset]
    _check_queues(store, model)
    check_agreement(store)
    _check_index(store, model)


def _check_queues(store: MessageStore, model: Model) -> None:
    for (topic, queue_id), end in model.next_offsets.items():
        bounds = store.queues.bounds(topic, queue_id)
        expect(
            bounds.max_offset == end,
            f"{topic}/{queue_id} ends at {bounds.max_offset}, but {end} messages were appended",
        )


def _check_index(store: MessageStore, model: Model) -> None:
    """Each key leads to its records, newest first, and to no others; of keys with a single record,
    only those of the last records are tried."""
    found: dict[tuple[str, str], list[Sent]] = {}
    last = {key for sent in model.sent[-_LAST_RECORDS:] for key in sent.keys}
    for sent in model.sent:
        if sent.start >= store.min_offset:
            for key in sent.keys:
                if key in last or not key.startswith(UNIQUE_KEY_PREFIX):
                    found.setdefault((sent.topic, key), []).append(sent)
    for (topic, key), wanted in found.items():
        records = find_by_key(store, topic, key)
        expect(
            records == [sent.data for sent in reversed(wanted)],
            f"key {key} of {topic} leads to {len(records)} records, not to "
            f"{[str(sent) for sent in reversed(wanted)]}",
        )


def check_closed_cleanly(store: MessageStore, model: Model) -> None:
    """After a close that returned, nothing is missing and nothing needed repair."""
    expect(store.recovery.clean, "the store was closed, but opens as after a crash")
    expect(
        store.appended_end >= model.appended_end,
        f"the store was closed at {model.appended_end}, but ends at {store.appended_end}",
    )
    expect(not store.recovery.warnings, f"a clean start warns: {store.recovery.warnings}")


def check_documents(disk: SimulatedDisk, model: Model) -> None:
    """Each config file is the old or the new version, complete."""
    for path, state in model.documents.items():
        try:
            loaded = read_with_backup(disk, path, TABLES[path])
        except StoreUnusable as error:
            raise Violation(f"{path} cannot be read: {error}") from error
        expect(
            loaded.value in state.allowed,
            f"{path} ({loaded.source}) is neither the old nor the new one: {_short(loaded.value)}",
        )
        if model.lost_power:
            state.allowed = [loaded.value]


def _topics(data: bytes) -> bytes:
    TopicTable.load(data)
    return data


def _offsets(data: bytes) -> bytes:
    ConsumerOffsetTable.load(data)
    return data


TABLES = {TOPICS_PATH: _topics, "config/consumerOffset.json": _offsets}


def _short(value: bytes | None) -> str:
    return "nothing" if value is None else f"{len(value)} bytes, {value[:60]!r}..."


def lasting_files(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.contents().items() if path.startswith(_LASTING)}


def check_second_start(
    disk: SimulatedDisk, clock: Clock, config: StoreConfig, store: MessageStore
) -> None:
    """Another start on the folder of `store` finds the same and changes nothing."""
    before = lasting_files(disk)
    min_offsets = {
        f"consumequeue/{topic}/{queue_id}": store.queues.bounds(topic, queue_id).min_offset
        for topic, queue_id in store.queues.names()
    }
    check_queue_files_are_whole(before, config.consume_queue_entries_per_file, min_offsets)
    copy = disk.copy()
    for read_only in (True, False):
        again = MessageStore.open(copy, clock, config, read_only=read_only)
        expect(
            again.appended_end == store.appended_end,
            f"another start finds an end at {again.appended_end}, the first found "
            f"{store.appended_end}",
        )
    after = lasting_files(copy)
    changed = sorted(path for path in before | after if before.get(path) != after.get(path))
    expect(not changed, f"a second start changed {changed}")
