"""The small files of a store, as plain values: topics, committed offsets, epochs, who wrote it.

Each is read from itself or else from its backup; one that is missing or unreadable is empty here
(unreadable ones are faults, reported elsewhere).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard, TypeVar

from aerobee.domain.names import KEPT_FROM_GROUP
from aerobee.offset_audit.sources.store.folders import CONFIG, StoreFolder
from aerobee.store.format.epoch_file import EPOCH_FILE, EpochEntry, decode_epochs
from aerobee.store.format.json_config import JsonObject, JsonValue, parse_object

_Value = TypeVar("_Value")

JOURNAL_MEMBER: Final = "aerobeeJournal"
_QUEUE_IDS_END: Final = 1 << 31
QUEUES_MAX: Final = 65_536
"""For a topic on one broker; a number above this is damage, and would create a row for each queue.
"""
READ_QUEUES: Final = "readQueueNums"
WRITE_QUEUES: Final = "writeQueueNums"
_QUEUES_DEFAULT: Final = 16
_WHOLE_END: Final = 1 << 63
_DIGITS_MAX: Final = 10
_TOLD_MAX: Final = 40
_UNDER_LEASE: Final = 0
_IS_RESET: Final = 2


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    read_queue_count: int | None
    write_queue_count: int | None
    """Number of queues, None if the value in the table is impossible."""
    perm: int
    is_batch: bool
    """Its queues are not in `consumequeue/`."""


@dataclass(frozen=True, slots=True)
class Commit:
    """`None`: unknown."""

    group: str
    topic: str
    queue_id: int
    offset: int
    lease_epoch: int | None = None
    committed_at_ms: int | None = None
    client_id: str | None = None
    is_reset: bool | None = None


@dataclass(frozen=True, slots=True)
class Writer:
    """The broker that last used the store; empty and None for what it did not record."""

    epoch: int | None = None
    instance: str | None = None
    incarnation: str | None = None


def read_topics(store: StoreFolder) -> tuple[list[Topic], int | None]:
    """The topics by name, and the counter of the table's version."""
    document = _document(store, "topics.json")
    beans = document.get("topicConfigTable")
    topics = [
        Topic(
            str(name),
            _queue_count(bean.get(READ_QUEUES)),
            _queue_count(bean.get(WRITE_QUEUES)),
            _small(bean.get("perm"), 6),
            _member(bean, "attributes").get("queue.type") == "BatchCQ",
        )
        for name, bean in (beans.items() if isinstance(beans, dict) else ())
        if isinstance(bean, dict)
    ]
    revision = _member(document, "dataVersion").get("counter")
    return sorted(topics, key=lambda topic: topic.name), _whole(revision, None)


def read_commits(store: StoreFolder) -> list[Commit]:
    """The committed offsets, by topic and group, with our journal's information if there is any."""
    document = _document(store, "consumerOffset.json")
    journal = _member(document, JOURNAL_MEMBER)
    clients = journal.get("clients")
    said = _Said(
        _member(journal, "epochs"),
        _member(journal, "changes"),
        clients if isinstance(clients, list) else [],
    )
    return [
        said.of(str(key), group, topic, queue_id, offset)
        for key, topic, group, queues in _tables(document)
        for queue_id, offset in sorted(queues.items())
    ]


def read_kept_from(store: StoreFolder) -> dict[tuple[str, int], int]:
    """Topic and queue id -> the first message that the topic keeps, where it does not keep all that
    the log has."""
    return {
        (commit.topic, commit.queue_id): commit.offset
        for commit in read_commits(store)
        if commit.group == KEPT_FROM_GROUP
    }


def read_epochs(store: StoreFolder) -> list[EpochEntry]:
    """(epoch, first log offset), oldest first."""
    return _read(store, EPOCH_FILE, decode_epochs) or []


def read_writer(store: StoreFolder) -> Writer:
    state = _read(store, f"{CONFIG}/replicaState.json", json.loads)
    if not isinstance(state, dict):
        return Writer()
    return Writer(
        _whole(state.get("epoch"), None),
        _text(state.get("instance")),
        _text(state.get("incarnation")),
    )


@dataclass(frozen=True, slots=True)
class _Said:
    """What our own member of the file says about commits."""

    epochs: JsonObject
    changes: JsonObject
    clients: list[JsonValue]

    def of(self, key: str, group: str, topic: str, queue_id: int, offset: int) -> Commit:
        change = _member(self.changes, key).get(str(queue_id))
        if not isinstance(change, list) or len(change) != 3:
            return Commit(group, topic, queue_id, offset)
        at_ms, client, kind = change
        epoch = _whole(_member(self.epochs, key).get(str(queue_id)), None)
        return Commit(
            group,
            topic,
            queue_id,
            offset,
            lease_epoch=epoch if kind == _UNDER_LEASE else None,
            committed_at_ms=_whole(at_ms, None),
            client_id=self._client(client),
            is_reset=kind == _IS_RESET,
        )

    def _client(self, code: JsonValue) -> str | None:
        if type(code) is not int or not 0 <= code < len(self.clients):
            return None
        return _text(self.clients[code])


def _tables(document: JsonObject) -> Iterator[tuple[str, str, str, Mapping[int, int]]]:
    for key, queues in sorted(
        _member(document, "offsetTable").items(), key=lambda pair: str(pair[0])
    ):
        topic, _, group = str(key).partition("@")
        if topic and group and isinstance(queues, dict):
            yield (
                str(key),
                topic,
                group,
                {
                    int(str(queue_id)): offset
                    for queue_id, offset in queues.items()
                    if _is_queue_id(str(queue_id)) and _is_offset(offset)
                },
            )


def parse_topics(data: bytes) -> JsonObject:
    """The table of topics.

    Raises:
        ValueError: not JSON, or a topic has an impossible number of queues.
    """
    document = parse_object(data)
    for topic, bean in _member(document, "topicConfigTable").items():
        counts = bean if isinstance(bean, dict) else {}
        for name in (READ_QUEUES, WRITE_QUEUES):
            if _queue_count(counts.get(name)) is None:
                text = f"{name} {str(counts[name])[:_TOLD_MAX]} of {str(topic)[:_TOLD_MAX]!r}"
                raise ValueError(f"{text}: a topic has 0 to {QUEUES_MAX} queues")
    return document


def read_offset_table(store: StoreFolder, name: str) -> Mapping[str, object]:
    """`offsetTable` of a table or of its backup, unchanged; empty without either."""
    return _read(store, f"{CONFIG}/{name}", _offset_table) or {}


def _offset_table(data: bytes) -> dict[str, object]:
    table = parse_object(data).get("offsetTable")
    if not isinstance(table, dict):
        raise ValueError("no offsetTable")
    return {str(key): value for key, value in table.items()}


def parse_offsets(data: bytes) -> JsonObject:
    """The table of committed offsets.

    Raises:
        ValueError: not JSON, or an impossible queue or offset.
    """
    document = parse_object(data)
    for key, queues in _member(document, "offsetTable").items():
        for queue_id, offset in queues.items() if isinstance(queues, dict) else ():
            if not _is_queue_id(str(queue_id)) or not _is_offset(offset):
                text = f"{str(queue_id)[:_TOLD_MAX]!r}: {str(offset)[:_TOLD_MAX]}"
                raise ValueError(f"not a queue and an offset: {text}, of {str(key)[:_TOLD_MAX]!r}")
    return document


def _is_queue_id(text: str) -> bool:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    return is_number and int(text) < _QUEUE_IDS_END


def _is_offset(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _WHOLE_END


def _document(store: StoreFolder, name: str) -> JsonObject:
    return _read(store, f"{CONFIG}/{name}", parse_object) or {}


def _read(store: StoreFolder, path: str, decode: Callable[[bytes], _Value]) -> _Value | None:
    for name in (path, f"{path}.bak"):
        try:
            return decode(store.path(name).read_bytes())
        except (OSError, ValueError):
            continue
    return None


def _member(value: JsonObject, name: str) -> JsonObject:
    member = value.get(name)
    return member if isinstance(member, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


_Default = TypeVar("_Default", int, None)


def _whole(value: object, default: _Default) -> int | _Default:
    return value if type(value) is int and -_WHOLE_END <= value < _WHOLE_END else default


def _queue_count(value: object) -> int | None:
    """Apache's default if there is no value, None if it is impossible."""
    if value is None:
        return _QUEUES_DEFAULT
    return value if type(value) is int and 0 <= value <= QUEUES_MAX else None


def _small(value: object, default: int) -> int:
    """A number of 32 bits."""
    return value if type(value) is int and abs(value) < _QUEUE_IDS_END else default
