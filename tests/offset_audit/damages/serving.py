"""What a broker serves of a store: it is started on it, stopped, and all that is left is read."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from aerobee.domain.names import is_retry_topic
from aerobee.offset_audit.sources.store.config_files import read_commits
from aerobee.offset_audit.sources.store.folders import Origin, StoreFolder
from aerobee.store.engine.message_store import MessageStore
from tests.offset_audit.damages.base_store import BROKER, GEOMETRY, HALF, TOPICS
from tests.offset_audit.damages.waiting_damages import CONFIG
from tests.support.real_brokers import RealBroker
from tests.support.stores import find_by_key, locate, open_store

BATCH = 256
BATCH_BYTES = 1 << 20


def served(root: Path, scratch: Path) -> dict[str, Any]:
    """Messages by queue, keys, offsets, topics and groups; `refused` if no broker can use it.

    `scratch` is a folder for a copy; it must not exist.
    """
    shutil.copytree(root, scratch, ignore=shutil.ignore_patterns("lock"))
    try:
        asyncio.run(_use(scratch))
        store = open_store(scratch, CONFIG)
        try:
            return {
                "messages": _messages(store),
                "keys": _keys(store),
                "commits": [
                    (one.group, one.topic, one.queue_id, one.offset)
                    for one in read_commits(StoreFolder(str(scratch), Origin()))
                ],
                "topics": _table(scratch, "topics.json", "topicConfigTable"),
                "groups": _table(scratch, "subscriptionGroup.json", "subscriptionGroupTable"),
            }
        finally:
            store.close()
    except Exception as error:
        return {"refused": repr(error)}
    finally:
        shutil.rmtree(scratch)


async def _use(root: Path) -> None:
    broker = await RealBroker(BROKER, root, TOPICS, store_options=GEOMETRY).start()
    await broker.stop()


def _messages(store: MessageStore) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for topic, queues in TOPICS.items():
        for queue_id in range(queues):
            bounds = store.queues.bounds(topic, queue_id)
            offset, parts = bounds.min_offset, []
            while offset < bounds.max_offset:
                located = locate(
                    store, topic, queue_id, offset, max_messages=BATCH, max_bytes=BATCH_BYTES
                )
                parts.append(bytes(store.log.read(located.runs)) if located.runs else b"")
                if located.next_offset <= offset:
                    break
                offset = located.next_offset
            entries = store.queues.read_entries(
                topic, queue_id, bounds.min_offset, bounds.max_offset - bounds.min_offset
            )
            found[f"{topic}/{queue_id}"] = [bytes(entries), b"".join(parts)]
    return found


def _keys(store: MessageStore) -> list[list[bytes]]:
    return [
        find_by_key(store, topic, f"key-{number}") for topic in TOPICS for number in range(HALF)
    ]


def _table(root: Path, name: str, member: str) -> dict[str, Any]:
    """Without retry topics: a broker makes them before it uses them."""
    table = json.loads((root / "config" / name).read_bytes())[member]
    return {key: row for key, row in table.items() if not is_retry_topic(key)}
