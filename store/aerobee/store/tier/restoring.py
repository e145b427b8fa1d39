"""A store folder from the tier alone.

Owns: the order in which it is made. Every byte is checked before the folder becomes a store: until
then its segments are in a folder beside, which a second try begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from isal.isal_zlib import crc32

from aerobee.runtime.errors import InvalidArgument, TierDamaged
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.epoch_table import save_epochs
from aerobee.store.format.names import file_name
from aerobee.store.tier.manifest import Manifest
from aerobee.store.tier.objects import CHUNK_BYTES, ObjectMissing, Objects, read_whole
from aerobee.store.tier.tables import unpack_tables
from aerobee.store.tier.uploads import OnChunk

_INCOMING: Final = "commitlog.restoring"


def restore(
    objects: Objects, manifests: Sequence[Manifest], disk: Disk, on_chunk: OnChunk = lambda _: None
) -> None:
    """Make a store of segments that follow each other. Durable on return. Blocks.

    The next start of a broker builds queues and index from the log.

    Raises:
        InvalidArgument: there is nothing to restore, or the folder is not empty.
        TierUnavailable, TierDamaged: no store was made.
        OSError: the disk failed.
    """
    if not manifests:
        raise InvalidArgument("the tier has no segment to restore: check the URL and the names")
    if [entry.name for entry in disk.list("") if entry.name != _INCOMING]:
        raise InvalidArgument(f"{disk} is not empty: restore into a folder of its own")
    _empty(disk)
    for manifest in manifests:
        _fetch(objects, manifest, disk, on_chunk)
    newest = manifests[-1]
    _make_next_segment(disk, newest)
    disk.fsync_directory(_INCOMING)
    disk.make_directory("config")
    for path, data in _tables(objects, newest).items():
        replace_atomically(disk, path, data)
    if newest.epochs:
        save_epochs(disk, newest.epochs)
    disk.rename(_INCOMING, COMMIT_LOG_DIRECTORY)
    disk.fsync_directory("")


def _empty(disk: Disk) -> None:
    """The folder beside, without what an earlier try left."""
    disk.make_directory(_INCOMING)
    for entry in disk.list(_INCOMING):
        disk.remove(f"{_INCOMING}/{entry.name}")


def _fetch(objects: Objects, manifest: Manifest, disk: Disk, on_chunk: OnChunk) -> None:
    file = disk.open_file(f"{_INCOMING}/{file_name(manifest.base)}", create=True)
    at, found_crc32 = 0, 0
    try:
        while at < manifest.size_bytes:
            wanted = min(CHUNK_BYTES, manifest.size_bytes - at)
            on_chunk(wanted)
            chunk = objects.read(manifest.object_name, at, wanted)
            if len(chunk) != wanted:
                raise TierDamaged(f"{manifest.object_name} in the tier is cut at {at + len(chunk)}")
            file.write_at(at, (chunk,))
            found_crc32 = crc32(chunk, found_crc32)
            at += wanted
        file.datasync()
    except ObjectMissing:
        raise TierDamaged(f"the tier has no {manifest.object_name}: restore the object") from None
    finally:
        file.close()
    if found_crc32 != manifest.crc32:
        raise TierDamaged(f"{manifest.object_name} in the tier has other bytes than were written")


def _make_next_segment(disk: Disk, newest: Manifest) -> None:
    """An empty one, so that the log goes on there: the last full segment must not change."""
    file = disk.open_file(f"{_INCOMING}/{file_name(newest.end)}", create=True)
    file.allocate(newest.size_bytes)
    file.datasync()
    file.close()


def _tables(objects: Objects, manifest: Manifest) -> dict[str, bytes]:
    try:
        data = read_whole(objects, manifest.tables_name)
    except ObjectMissing:
        raise TierDamaged(f"the tier has no {manifest.tables_name}: restore the object") from None
    if sha256(data).hexdigest() != manifest.tables_sha256:
        raise TierDamaged(f"{manifest.tables_name} in the tier has other bytes than were written")
    return dict(unpack_tables(data))
