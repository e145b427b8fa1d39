"""What a broker serves of a store: it is started on it, stopped, and all that is left is read."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.pop.entries import POP_JOURNAL_TOPIC, decode_entry
from aerobee.broker.pop.journal_state import apply_entries
from aerobee.broker.pop.standing import Standing
from aerobee.domain.names import is_retry_topic
from aerobee.offset_audit.sources.store.config_files import read_commits
from aerobee.offset_audit.sources.store.folders import Origin, StoreFolder
from aerobee.offset_audit.sources.store.open_file import used_size
from aerobee.offset_audit.sources.store.pending import pending_rows
from aerobee.offset_audit.sources.store.ranges_facts import store_facts
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.format.properties import PropertyName
from aerobee.store.format.record import iterate_records
from tests.offset_audit.damages.base_store import BROKER, BaseStores
from tests.support.real_brokers import RealBroker
from tests.support.sparse_copy import copy_folder
from tests.support.stores import find_by_key, locate, open_store

BATCH = 256
BATCH_BYTES = 1 << 20
NOT_SERVED = "AEROBEE_"
"""How topics begin that only their broker reads."""


Key = tuple[str, str]
"""A topic and one of its keys."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A store before any damage."""

    bases: BaseStores
    keys: Sequence[Key]
    searched: bytes
    """Digest of what a search for keys reads."""
    served: Mapping[str, Any]


def sound_store(bases: BaseStores, scratch: Path) -> Sound:
    """What a broker serves of an undamaged store."""
    messages = served(bases.final, scratch, bases)["messages"]
    bare = Sound(bases, _keys_of(messages), b"", {})
    found = served(bases.final, scratch, bases, bare)
    return replace(bare, searched=found["searched"], served=found)


def served(
    root: Path, scratch: Path, bases: BaseStores, sound: Sound | None = None
) -> dict[str, Any]:
    """Messages by queue, keys, offsets, what waits and what POP has handed out, topics and groups;
    `refused` if no broker can use it. Apache's stores are only opened: a broker would at once
    deliver what has been due since.

    `scratch` is a folder for a copy; it must not exist.
    """
    copy_folder(root, scratch, "lock")
    try:
        if bases.is_ours:
            asyncio.run(_use(scratch, bases))
        store = open_store(scratch, config_of(bases))
        try:
            searched = _searched(scratch, bases)
            found: dict[str, Any] = {"messages": _messages(store, bases), "pop": _popped(store)}
            found["searched"] = searched
            if sound is not None and searched == sound.searched:
                found["keys"] = sound.served["keys"]
            elif sound is not None:
                found["keys"] = [find_by_key(store, *key) for key in sound.keys]
        finally:
            store.close()
        folder = StoreFolder(str(scratch), Origin())
        return found | {
            "commits": [
                (one.group, one.topic, one.queue_id, one.offset) for one in read_commits(folder)
            ],
            "waiting": [
                (row["kind"], row["topic"], row["queue_id"], row["queue_offset"], row["due_ms"])
                for batch in pending_rows(store_facts(folder))
                for row in batch.to_pylist()
                if not row["resolved"]
            ],
            "topics": _table(scratch, "topics.json", "topicConfigTable"),
            "groups": _table(scratch, "subscriptionGroup.json", "subscriptionGroupTable"),
        }
    except Exception as error:
        return {"refused": repr(error)}
    finally:
        shutil.rmtree(scratch)


def config_of(bases: BaseStores) -> StoreConfig:
    """How a store of these is opened."""
    return StoreConfig(
        disk_free_bytes_min=0,
        # How full the disk of this machine is must not decide what a test sees.
        retention=RetentionConfig(enabled=False),
        **bases.geometry,  # type: ignore[arg-type]
    )


async def _use(root: Path, bases: BaseStores) -> None:
    options: Any = bases.geometry
    broker = await RealBroker(BROKER, root, bases.topics, store_options=options).start()
    await broker.stop()


def _queues(root: Path) -> list[tuple[str, int]]:
    """Of the undamaged store."""
    folders = sorted((root / "consumequeue").glob("*/*"))
    names = [(folder.parent.name, int(folder.name)) for folder in folders]
    return [name for name in names if not name[0].startswith(NOT_SERVED)]


def _messages(store: MessageStore, bases: BaseStores) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for topic, queue_id in _queues(bases.final):
        bounds = store.queues.bounds(topic, queue_id)
        entries = store.queues.read_entries(
            topic, queue_id, bounds.min_offset, bounds.max_offset - bounds.min_offset
        )
        found[f"{topic}/{queue_id}"] = [bytes(entries), _records(store, topic, queue_id)]
    return found


def _records(store: MessageStore, topic: str, queue_id: int) -> bytes:
    """All of one queue, end to end."""
    bounds = store.queues.bounds(topic, queue_id)
    offset, parts = bounds.min_offset, []
    while offset < bounds.max_offset:
        located = locate(store, topic, queue_id, offset, max_messages=BATCH, max_bytes=BATCH_BYTES)
        parts.append(bytes(store.log.read(located.runs)) if located.runs else b"")
        if located.next_offset <= offset:
            break
        offset = located.next_offset
    return b"".join(parts)


def _searched(root: Path, bases: BaseStores) -> bytes:
    """Equal digests, equal answers: of the index and of the log as far as it was written before."""
    digest = hashlib.sha256()
    for path in sorted((root / "index").iterdir()):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    for path in sorted((bases.final / "commitlog").iterdir()):
        same = root / "commitlog" / path.name
        data = same.read_bytes() if same.exists() else b""
        digest.update(data[: used_size(path.read_bytes())])
    return digest.digest()


def _keys_of(messages: Mapping[str, Sequence[bytes]]) -> list[Key]:
    """All that users gave to messages that are served."""
    found: set[Key] = set()
    for queue, (_, records) in messages.items():
        topic = queue.rpartition("/")[0]
        for record in iterate_records(records):
            names = record.properties.get(PropertyName.KEYS, "").split()
            found.update((topic, name) for name in names)
    return sorted(found)


def _popped(store: MessageStore) -> list[str]:
    """What POP has finished and handed out, by queue."""
    queues: dict[GroupQueue, Standing] = {}
    for record in iterate_records(_records(store, POP_JOURNAL_TOPIC, 0)):
        entries = map(decode_entry, json.loads(record.body))
        apply_entries(queues, [one for one in entries if one is not None])
    return [f"{key}: {standing!r}" for key, standing in sorted(queues.items())]


def _table(root: Path, name: str, member: str) -> dict[str, Any]:
    """Without retry topics: a broker makes them before it uses them."""
    table = json.loads((root / "config" / name).read_bytes())[member]
    return {key: row for key, row in table.items() if not is_retry_topic(key)}
