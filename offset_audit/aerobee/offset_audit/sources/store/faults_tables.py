"""Faults of the tables of a store: unreadable ones, one that something else than a broker has
changed, and rows that are gone though other files need them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Set
from threading import Event
from typing import Final

from aerobee.domain.names import is_system_group, is_system_topic
from aerobee.offset_audit.sources.store.config_files import (
    JOURNAL_MEMBER,
    parse_offsets,
    parse_topics,
    read_offset_table,
    read_topics,
)
from aerobee.offset_audit.sources.store.faults import Fault, FaultKind
from aerobee.offset_audit.sources.store.files import queue_files
from aerobee.offset_audit.sources.store.folders import CONFIG, StoreFolder
from aerobee.store.format.content_check import CHECK_MEMBER, is_as_written
from aerobee.store.format.dead_letter_fields import DEAD_LETTER_PREFIX, RETRY_PREFIX
from aerobee.store.format.epoch_file import EPOCH_FILE, decode_epochs
from aerobee.store.format.json_config import JsonObject, parse_object
from aerobee.store.format.names import LIGHT_QUEUE_PREFIX
from aerobee.store.format.progress_file import CHECKS
from aerobee.store.format.timer_checkpoint import TimerCheckpoint
from aerobee.store.format.timer_wheel import WHEEL_SIZE

LOOK_AGAIN_S: Final = 0.2

OFFSETS_FILE: Final = "consumerOffset.json"
_GROUPS_FILE: Final = "subscriptionGroup.json"
_TOPICS_FILE: Final = "topics.json"
_OWN_PREFIXES: Final = ("AEROBEE_", RETRY_PREFIX, DEAD_LETTER_PREFIX)
"""Of topics that a broker makes by itself."""
_BACKUP: Final = ".bak"
_NO_TABLES: Final = (_BACKUP, ".tmp", "-temp")
_DECODERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "timercheck": TimerCheckpoint.decode,
    OFFSETS_FILE: parse_offsets,
    _TOPICS_FILE: parse_topics,
    **CHECKS,
}


def table_faults(store: StoreFolder, *, is_clean: bool) -> Iterator[Fault]:
    """Those that cannot be read, whether or not their backup can; that something else than a broker
    has changed; and, after a clean stop, that lack what other files have."""
    yield from _unreadable(store)
    yield from _changed(store)
    if is_clean:
        yield from _incomplete(store)


def _unreadable(store: StoreFolder) -> Iterator[Fault]:
    for name in _table_names(store):
        problem = _problem(store, f"{CONFIG}/{name}", _DECODERS.get(name, parse_object))
        if problem is not None:
            yield _bad_table(store, f"{CONFIG}/{name}", problem, _DECODERS.get(name, parse_object))
    if store.path(EPOCH_FILE).exists():
        problem = _problem(store, EPOCH_FILE, decode_epochs)
        if problem is not None:
            yield _bad_table(store, EPOCH_FILE, problem, decode_epochs)
    wheel = store.path("timerwheel")
    if wheel.exists() and wheel.stat().st_size != WHEEL_SIZE:
        text = f"a timer wheel has {WHEEL_SIZE} bytes, not {wheel.stat().st_size}"
        yield Fault(FaultKind.BAD_CONFIG, "timerwheel", 0, text)


def _changed(store: StoreFolder) -> Iterator[Fault]:
    path = f"{CONFIG}/{OFFSETS_FILE}"
    if _is_ours(store) and not is_as_written(_data(store, path)):
        text = "its checksum does not match: something else than a broker has changed it"
        yield Fault(FaultKind.CHANGED_TABLE, path, None, text)


def _incomplete(store: StoreFolder) -> Iterator[Fault]:
    """A broker of ours knows every group with offsets by name, and every topic with messages. A
    topic on which groups have offsets is reported as an orphan."""
    if not _is_ours(store):
        return
    offsets = [key.partition("@") for key in read_offset_table(store, OFFSETS_FILE)]
    groups = {group for _, _, group in offsets if group and not is_system_group(group)}
    table = _document(store, _GROUPS_FILE).get("subscriptionGroupTable")
    unknown = groups.difference(table if isinstance(table, dict) else ())
    if unknown:
        text = f"{_named('group', unknown)} offsets, and no settings"
        yield Fault(FaultKind.LOST_ROW, f"{CONFIG}/{_GROUPS_FILE}", None, text)
    read = {topic for topic, _, _ in offsets}
    topics, _ = read_topics(store)
    known = {topic.name for topic in topics}
    held = {queue.topic for queue in queue_files(store) if any(file.size for file in queue.files)}
    lost = {topic for topic in held - known - read if _is_of_users(topic)}
    if lost:
        text = f"{_named('topic', lost)} queues with messages, and no settings"
        yield Fault(FaultKind.LOST_ROW, f"{CONFIG}/{_TOPICS_FILE}", None, text)


def _is_of_users(topic: str) -> bool:
    return not (is_system_topic(topic) or topic.startswith((*_OWN_PREFIXES, LIGHT_QUEUE_PREFIX)))


def _named(what: str, names: Set[str]) -> str:
    first = f"{what} {min(names)}"
    return f"{first} has" if len(names) == 1 else f"{first} and {len(names) - 1} more have"


def _is_ours(store: StoreFolder) -> bool:
    """Whether a broker of ours that writes a checksum wrote the committed offsets last."""
    member = _document(store, OFFSETS_FILE).get(JOURNAL_MEMBER)
    return isinstance(member, dict) and CHECK_MEMBER in member


def _document(store: StoreFolder, name: str) -> JsonObject:
    try:
        return parse_object(_data(store, f"{CONFIG}/{name}"))
    except ValueError:
        return {}


def _data(store: StoreFolder, path: str) -> bytes:
    try:
        return store.path(path).read_bytes()
    except OSError:
        return b""


def _table_names(store: StoreFolder) -> list[str]:
    """Tables that exist, or of which only a backup exists."""
    try:
        with os.scandir(store.path(CONFIG)) as entries:
            names = {entry.name for entry in entries if entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return []
    tables = {name for name in names if not name.endswith(_NO_TABLES)}
    backups = {name.removesuffix(_BACKUP) for name in names if name.endswith(_BACKUP)}
    return sorted(tables | backups)


def _bad_table(
    store: StoreFolder, path: str, problem: str, decode: Callable[[bytes], object]
) -> Fault:
    backup = _problem(store, path + _BACKUP, decode)
    text = (
        "its backup can be read"
        if backup is None
        else f"its backup cannot be read either: {backup}"
    )
    return Fault(FaultKind.BAD_CONFIG, path, None, f"{problem}; {text}")


def _problem(store: StoreFolder, path: str, decode: Callable[[bytes], object]) -> str | None:
    """Why a table cannot be read, now and a moment later; None if it can. Apache's broker
    overwrites its tables in place, so a single read may see half of one."""
    problem = _problem_now(store, path, decode)
    if problem is not None:
        Event().wait(LOOK_AGAIN_S)
        problem = _problem_now(store, path, decode)
    return problem


def _problem_now(store: StoreFolder, path: str, decode: Callable[[bytes], object]) -> str | None:
    try:
        data = store.path(path).read_bytes()
    except FileNotFoundError:
        return "the file is missing"
    except OSError as error:
        return f"the file cannot be read: {error.strerror}"
    if not data.strip(b" \t\r\n\0"):
        return "the file is empty"
    try:
        decode(data)
    except ValueError as error:
        return str(error)
    return None
