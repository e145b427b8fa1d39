"""The local offset store: a file per client and group (broadcasting).

Path and content are those of Apache RocketMQ's Java client, so that a consumer can change hands:
`<folder>/<client id>/<group>/offsets.json`, the folder by default `~/.rocketmq_offsets`.
Invariants: after a crash at any moment the file or its `.bak` has a complete state; the newest one
is read first. A file that cannot be understood is never overwritten silently.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.committing import Commit
from aerobee.runtime.errors import AerobeeError, InvalidArgument
from aerobee.runtime.private_files import make_private_folder, private_opener
from aerobee.store_format.json_config import JsonIllegal, ObjectKey, parse_object, render_json

FOLDER_DEFAULT = ".rocketmq_offsets"
FILE_NAME = "offsets.json"


class FileOffsetStore:
    """Offsets of one client and group in one file.

    Two live processes must not share a client id and group: the last writer would win. Brokers
    refuse the second one.
    """

    def __init__(self, client_id: str, group: str, *, folder: Path | None = None) -> None:
        """`folder`: where all clients of this user keep theirs.

        Raises:
            InvalidArgument: the client id or group cannot be the name of a folder.
        """
        for name in (client_id, group):
            if name in ("", ".", "..") or os.sep in name or "\0" in name:
                raise InvalidArgument(
                    f"{name!r} cannot name a folder of local offsets; choose another client id"
                )
        self.path = (folder or Path.home() / FOLDER_DEFAULT) / client_id / group / FILE_NAME
        self._offsets: dict[MessageQueue, int] | None = None
        self._writing = asyncio.Lock()

    async def read(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """As OffsetStore.

        Raises:
            InvalidArgument: neither the file nor its backup can be read or understood.
        """
        known = await self._load()
        return {queue: known[queue] for queue in queues if queue in known}

    async def begin(
        self, offsets: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, AerobeeError]:
        try:
            known = await self._load()
        except AerobeeError as error:
            return dict.fromkeys(offsets, error)
        return await self.commit(
            [Commit(queue, offset, 0) for queue, offset in offsets.items() if queue not in known]
        )

    async def commit(self, commits: Sequence[Commit]) -> Mapping[MessageQueue, AerobeeError]:
        try:
            async with self._writing:
                known = {**await self._load(), **{entry.queue: entry.offset for entry in commits}}
                await asyncio.to_thread(replace_file, self.path, encode_offsets(known))
                self._offsets = known
        except OSError as error:
            reason = InvalidArgument(
                f"cannot write local offsets to {self.path}: {error.strerror}; make the folder "
                "writable or choose another"
            )
            return {entry.queue: reason for entry in commits}
        except AerobeeError as error:
            return {entry.queue: error for entry in commits}
        return {}

    async def _load(self) -> dict[MessageQueue, int]:
        if self._offsets is None:
            self._offsets = await asyncio.to_thread(read_offsets_file, self.path)
        return self._offsets


def read_offsets_file(path: Path) -> dict[MessageQueue, int]:
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
    return {}


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


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """The file's bytes, in a form that both clients read."""
    table = {
        ObjectKey.of(
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
        ): offset
        for queue, offset in sorted(offsets.items())
    }
    return render_json({TABLE: table})


def decode_offsets(data: bytes) -> dict[MessageQueue, int]:
    """The offsets in a file's bytes.

    Raises:
        JsonIllegal: not such a file; says where.
    """
    table = parse_object(data).get(TABLE, {})
    if not isinstance(table, dict):
        raise _illegal(f"{TABLE} must be an object")
    offsets: dict[MessageQueue, int] = {}
    for key, offset in table.items():
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise _illegal(f"the offset of {key!r} must be an integer, not {offset!r}")
        offsets[_queue_of(key)] = offset
    return offsets


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
