"""The local offset store: a file per client and group (broadcasting).

Path and content are those of Apache RocketMQ's Java client, so that a consumer can change hands:
`<folder>/<client id>/<group>/offsets.json`, the folder by default `~/.rocketmq_offsets`.
We also note of each topic when one of its name was deleted last, which Apache's client ignores: an
offset means nothing in a topic that was made anew, and that one is read from its first message.
Invariants: after a crash at any moment the file or its `.bak` has a complete state; the newest one
is read first. A file that cannot be understood is never overwritten silently.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.committing import Commit
from aerobee.runtime.errors import AerobeeError, InvalidArgument
from aerobee.runtime.log import log_event
from aerobee.runtime.private_files import make_private_folder, private_opener
from aerobee.store.format.json_config import JsonIllegal, ObjectKey, parse_object, render_json

FOLDER_DEFAULT = ".rocketmq_offsets"
FILE_NAME = "offsets.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocalOffsets:
    """What a file says."""

    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    deletions: Mapping[str, int] = field(default_factory=dict)
    """By topic of these offsets, when one of its name had been deleted last, Unix ms; 0: never. A
    topic is missing if another client wrote its offsets."""

    def of_topic(self, topic: str, deleted_at_ms: int) -> LocalOffsets:
        """As the topic is now: if it was deleted since, each of its queues begins at 0."""
        noted_ms = self.deletions.get(topic)
        offsets = self.offsets
        if noted_ms is not None and deleted_at_ms > noted_ms:
            offsets = {
                queue: 0 if queue.topic == topic else offset for queue, offset in offsets.items()
            }
        # A nameserver that has forgotten the deletion does not undo it.
        return LocalOffsets(offsets, {**self.deletions, topic: max(deleted_at_ms, noted_ms or 0)})


class FileOffsetStore:
    """Offsets of one client and group in one file.

    Two live processes must not share a client id and group: the last writer would win. Brokers
    refuse the second one.
    """

    def __init__(
        self,
        client_id: str,
        group: str,
        *,
        folder: Path | None = None,
        deleted_at_ms: Callable[[str], int] = lambda topic: 0,
    ) -> None:
        """`folder`: where all clients of this user keep theirs. `deleted_at_ms`: when a topic of
        this name was deleted last, as far as is known now; 0: never.

        Raises:
            InvalidArgument: the client id or group cannot be the name of a folder.
        """
        for name in (client_id, group):
            if name in ("", ".", "..") or os.sep in name or "\0" in name:
                raise InvalidArgument(
                    f"{name!r} cannot name a folder of local offsets; choose another client id"
                )
        self.path = (folder or Path.home() / FOLDER_DEFAULT) / client_id / group / FILE_NAME
        self._group = group
        self._deleted_at_ms = deleted_at_ms
        self._known: LocalOffsets | None = None
        self._writing = asyncio.Lock()

    async def read(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """As OffsetStore. From now on the queues' topics are those that exist now: offsets of
        earlier ones must not be committed any more.

        Raises:
            InvalidArgument: neither the file nor its backup can be read or understood.
        """
        known = before = await self._load()
        for topic in sorted({queue.topic for queue in queues}):
            known = known.of_topic(topic, self._deleted_at_ms(topic))
            if known.offsets is not before.offsets:
                log_event(
                    log,
                    "the topic was deleted and made anew: it is read from its first message",
                    level=logging.WARNING,
                    group=self._group,
                    topic=topic,
                )
                before = known
        self._known = known
        return {queue: known.offsets[queue] for queue in queues if queue in known.offsets}

    async def begin(
        self, offsets: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, AerobeeError]:
        try:
            known = await self._load()
        except AerobeeError as error:
            return dict.fromkeys(offsets, error)
        return await self.commit(
            [
                Commit(queue, offset, 0)
                for queue, offset in offsets.items()
                if queue not in known.offsets
            ]
        )

    async def commit(self, commits: Sequence[Commit]) -> Mapping[MessageQueue, AerobeeError]:
        try:
            async with self._writing:
                before = await self._load()
                new = {entry.queue: entry.offset for entry in commits}
                known = LocalOffsets({**before.offsets, **new}, before.deletions)
                await asyncio.to_thread(replace_file, self.path, encode_offsets(known))
                self._known = known
        except OSError as error:
            reason = InvalidArgument(
                f"cannot write local offsets to {self.path}: {error.strerror}; make the folder "
                "writable or choose another"
            )
            return {entry.queue: reason for entry in commits}
        except AerobeeError as error:
            return {entry.queue: error for entry in commits}
        return {}

    async def _load(self) -> LocalOffsets:
        if self._known is None:
            self._known = await asyncio.to_thread(read_offsets_file, self.path)
        return self._known


def read_offsets_file(path: Path) -> LocalOffsets:
    """The offsets in `path`, else in its backup, else none. Blocks.

    Raises:
        InvalidArgument: there are files, but none of them can be read.
    """
    problem = ""
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            data = candidate.read_bytes()
            if data:
                return decode_offsets(data)
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = problem or f"cannot read {candidate}: {error.strerror}"
        except JsonIllegal as error:
            problem = problem or f"{candidate} is damaged: {error}"
    if problem:
        raise InvalidArgument(f"{problem}; repair it, or remove it to start as start_from says")
    return LocalOffsets()


def replace_file(path: Path, data: bytes) -> None:
    """Replace the file by `data`, keeping the previous one as `.bak`, or as `.damaged` if it could
    not be read (the backup that was read instead stays). Blocks.

    Raises:
        OSError: the folder cannot be made or written.
    """
    make_private_folder(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb", opener=private_opener) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        path.replace(path.with_name(path.name + (".bak" if _is_readable(path) else ".damaged")))
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_readable(path: Path) -> bool:
    try:
        decode_offsets(path.read_bytes())
    except JsonIllegal:
        return False
    return True


TABLE = "offsetTable"
DELETIONS = "deletedTopics"


def encode_offsets(known: LocalOffsets) -> bytes:
    """The file's bytes, in a form that both clients read."""
    table = {
        ObjectKey.of(
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
        ): offset
        for queue, offset in sorted(known.offsets.items())
    }
    topics = {queue.topic for queue in known.offsets}
    deletions = {
        topic: at_ms for topic, at_ms in sorted(known.deletions.items()) if topic in topics
    }
    return render_json({TABLE: table, DELETIONS: deletions} if deletions else {TABLE: table})


def decode_offsets(data: bytes) -> LocalOffsets:
    """What a file's bytes say.

    Raises:
        JsonIllegal: not such a file; says where.
    """
    document = parse_object(data)
    table, deletions = document.get(TABLE, {}), document.get(DELETIONS, {})
    if not isinstance(table, dict):
        raise _illegal(f"{TABLE} must be an object")
    if not isinstance(deletions, dict):
        raise _illegal(f"{DELETIONS} must be an object")
    times: dict[str, int] = {}
    for topic, at_ms in deletions.items():
        if not isinstance(at_ms, int) or isinstance(at_ms, bool):
            raise _illegal(f"the time of {topic!r} must be an integer, not {at_ms!r}")
        times[str(topic)] = at_ms
    offsets: dict[MessageQueue, int] = {}
    for key, offset in table.items():
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise _illegal(f"the offset of {key!r} must be an integer, not {offset!r}")
        offsets[_queue_of(key)] = offset
    return LocalOffsets(offsets, times)


def _queue_of(key: str | ObjectKey) -> MessageQueue:
    # Stricter JSON writers turn an object key into quoted text.
    members: Mapping[Any, object] = parse_object(key) if isinstance(key, str) else key.as_dict()
    topic, broker_name = members.get("topic"), members.get("brokerName")
    queue_id = members.get("queueId")
    if (
        not isinstance(topic, str)
        or not isinstance(broker_name, str)
        or not isinstance(queue_id, int)
    ):
        raise _illegal(f"{key!r} names no queue by topic, brokerName and queueId")
    return MessageQueue(topic, broker_name, queue_id)


def _illegal(problem: str) -> JsonIllegal:
    return JsonIllegal(problem, position=0, line=1, column=1)
