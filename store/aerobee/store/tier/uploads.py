"""How a sealed segment gets into the tier, one step after the other; each may be the last.

    look      is there a manifest? then the segment is there, or another log's is
    write     its bytes, under a name that nobody else uses
    verify    read them back
    tables    what else a new broker needs: topics, groups, offsets
    decide    create the manifest, which only one writer can
    tidy      remove other objects of the same segment

Whatever interrupts a step, the next round begins by looking, and continues or starts over. Before
the manifest there is no promise; after it nothing of the segment is written again. Objects are
removed only once a manifest has decided that they are left-overs: until then another master might
be about to name them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from isal.isal_zlib import crc32

from aerobee.runtime.errors import TierDamaged, TierUnavailable
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.log.segment import segment_path
from aerobee.store.format.epoch_file import EpochEntry
from aerobee.store.tier.manifest import (
    HEAD_BYTES,
    SEGMENTS_PREFIX,
    LocalSegment,
    Manifest,
    decode_manifest,
    epochs_up_to,
    manifest_name,
    mark_name,
    segment_base,
    segment_folder,
    segment_object_name,
    tables_name,
)
from aerobee.store.tier.objects import CHUNK_BYTES, ObjectMissing, Objects, read_whole

OnChunk = Callable[[int], None]
"""Called before each chunk with its size: it may wait, to keep a pace, and raise, to give up."""

_NO_PACE: Final[OnChunk] = lambda _: None  # noqa: E731


@dataclass(frozen=True, slots=True)
class Writer:
    """Who uploads: one run of one master."""

    epoch: int
    name: str
    """Unique among all writers of all times."""


def local_segment(disk: Disk, base: int, end: int, epochs: tuple[EpochEntry, ...]) -> LocalSegment:
    """A sealed segment of a folder, whose log has these epochs. Raises OSError."""
    file = disk.open_file(segment_path(base), read_only=True)
    try:
        head = file.read_at(0, min(HEAD_BYTES, end - base))
    finally:
        file.close()
    return LocalSegment(
        base=base,
        end=end,
        epochs=epochs_up_to(epochs, end),
        head_sha256=sha256(head).hexdigest(),
    )


def find_manifest(objects: Objects, base: int) -> Manifest | None:
    """The manifest of the segment that begins at `base`; None: there is certainly none.

    Raises TierUnavailable, TierDamaged.
    """
    try:
        data = read_whole(objects, manifest_name(base))
    except ObjectMissing:
        return None
    manifest = decode_manifest(data)
    if manifest.base != base:
        raise TierDamaged(
            f"{manifest_name(base)} is the manifest of the segment at {manifest.base}: restore the "
            "object"
        )
    return manifest


def was_forgotten(objects: Objects, base: int) -> bool:
    """Whether an operator has removed the segment from the tier for good. A manifest that is gone
    without such a mark is a loss. Raises TierUnavailable."""
    try:
        objects.read(mark_name(base), 0, 1)
    except ObjectMissing:
        return False
    return True


def check_agrees(manifest: Manifest, local: LocalSegment) -> None:
    """Raises TierDamaged: the tier has another log."""
    if not manifest.agrees(local):
        raise TierDamaged(
            f"the tier's segment at {local.base} is of another log than this broker's: another "
            "cluster uses the same place, or messages were given up in an unclean election; set "
            "tier.url to a place of its own, or remove what the log no longer has with `aerobee "
            f"tier forget --from {local.base}`"
        )


def check_continues(previous: Manifest, base: int, epochs: tuple[EpochEntry, ...]) -> None:
    """Raises TierDamaged: the log that begins at `base`, with these epochs, does not continue the
    segment before it in the tier."""
    known = epochs_up_to(epochs, base)
    if previous.end != base or previous.last_epoch != (known[-1] if known else None):
        raise TierDamaged(
            f"this broker's log does not continue the tier's segment at {previous.base}: another "
            "cluster uses the same place, or messages were given up in an unclean election; set "
            "tier.url to a place of its own, or remove what the log no longer has with `aerobee "
            f"tier forget --from {previous.base}`"
        )


class Upload:
    """[any thread] One segment's way into the tier; `run` blocks."""

    def __init__(
        self,
        objects: Objects,
        disk: Disk,
        local: LocalSegment,
        previous: Manifest | None,
        writer: Writer,
        *,
        tables: bytes,
        written_ms: int,
        now_ms: int,
        on_chunk: OnChunk = _NO_PACE,
    ) -> None:
        """`previous`: the manifest of the segment before; None: the chain begins with this one.
        `tables`: see `pack_tables`."""
        assert previous is None or previous.end == local.base
        self._objects = objects
        self._disk = disk
        self._local = local
        self._previous = previous
        self._writer = writer
        self._tables = tables
        self._written_ms = written_ms
        self._now_ms = now_ms
        self._on_chunk = on_chunk
        self.uploaded_bytes = 0
        """What this writer brought into the tier; 0 if another did."""

    def run(self) -> Manifest:
        """The segment's manifest, its own or another writer's.

        Raises:
            TierUnavailable: unknown how far it came; run another one.
            TierDamaged: the tier has another log, or does not return what was written.
            OSError: the segment cannot be read.
        """
        manifest = find_manifest(self._objects, self._local.base)
        if manifest is None:
            manifest = self._bring()
        check_agrees(manifest, self._local)
        tidy_segment(self._objects, manifest)
        return manifest

    def _bring(self) -> Manifest:
        base = self._local.base
        name = segment_object_name(base, epoch=self._writer.epoch, writer=self._writer.name)
        self._crc32 = 0
        self._objects.put(name, self._chunks())
        size = self._local.end - base
        try:
            verify_object(self._objects, name, size, self._crc32, self._on_chunk)
        except ObjectMissing:
            # Another master's manifest has decided, and it has removed this left-over.
            return self._decided()
        self._objects.put(tables_name(name), (self._tables,))
        manifest = Manifest(
            base=base,
            end=self._local.end,
            object_name=name,
            crc32=self._crc32,
            head_sha256=self._local.head_sha256,
            tables_sha256=sha256(self._tables).hexdigest(),
            epochs=self._local.epochs,
            epoch=self._writer.epoch,
            written_ms=self._written_ms,
            uploaded_ms=self._now_ms,
            previous="" if self._previous is None else self._previous.digest,
        )
        if not self._objects.create(manifest_name(base), manifest.encode()):
            manifest = self._decided()
        if manifest.object_name == name:
            self.uploaded_bytes = manifest.size_bytes
        return manifest

    def _decided(self) -> Manifest:
        """The manifest that must be there by now."""
        manifest = find_manifest(self._objects, self._local.base)
        if manifest is None:
            raise TierUnavailable(
                f"what was written of the segment at {self._local.base} has gone from the tier"
            )
        return manifest

    def _chunks(self) -> Iterator[bytes]:
        """The segment's bytes, from the disk."""
        file = self._disk.open_file(segment_path(self._local.base), read_only=True)
        try:
            at, size = 0, self._local.end - self._local.base
            while at < size:
                wanted = min(CHUNK_BYTES, size - at)
                self._on_chunk(wanted)
                chunk = file.read_at(at, wanted)
                if len(chunk) != wanted:
                    raise OSError(f"{segment_path(self._local.base)} is shorter than it should be")
                self._crc32 = crc32(chunk, self._crc32)
                at += wanted
                yield chunk
        finally:
            file.close()


def verify_object(
    objects: Objects, name: str, size: int, expected_crc32: int, on_chunk: OnChunk = _NO_PACE
) -> None:
    """Read an object whole and compare it. Raises ObjectMissing, TierUnavailable, TierDamaged."""
    found_crc32 = 0
    at = 0
    while at <= size:
        wanted = min(CHUNK_BYTES, size - at) or 1  # one more byte than there should be
        on_chunk(wanted)
        chunk = objects.read(name, at, wanted)
        if not chunk:
            break
        found_crc32 = crc32(chunk, found_crc32)
        at += len(chunk)
    if at != size:
        raise TierDamaged(f"{name} in the tier has {at} bytes or more, not {size}: restore it")
    if found_crc32 != expected_crc32:
        raise TierDamaged(f"{name} in the tier has other bytes than were written: restore it")


def tidy_segment(objects: Objects, manifest: Manifest) -> int:
    """Remove what interrupted uploads of the segment left; returns how many objects. For a
    manifest that was read from the tier or created there. Raises TierUnavailable."""
    removed = 0
    for found in objects.list(segment_folder(manifest.base)):
        if found.name not in (manifest.object_name, manifest.tables_name):
            objects.remove(found.name)
            removed += 1
    return removed


def tidy_tier(objects: Objects) -> int:
    """The same for all segments, which needs one listing; returns how many objects were removed.
    For masters that died before they could. Raises TierUnavailable, TierDamaged."""
    counts: Counter[int] = Counter()
    for found in objects.list(SEGMENTS_PREFIX):
        base = segment_base(found.name)
        if base is not None:
            counts[base] += 1
    removed = 0
    for base in sorted(base for base, count in counts.items() if count > 2):
        manifest = find_manifest(objects, base)
        if manifest is not None:
            removed += tidy_segment(objects, manifest)
    return removed
