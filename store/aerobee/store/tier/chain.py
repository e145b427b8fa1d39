"""What is in a tier: its chain of manifests, and whether everything is as they say.

Owns: reading and judging the whole tier. A listing only tells where to look: an object counts as
missing after the store said so itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from itertools import pairwise

from isal.isal_zlib import crc32

from aerobee.runtime.errors import TierDamaged
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY, segment_path
from aerobee.store.format.names import file_name
from aerobee.store.tier.manifest import (
    CHAIN_PREFIX,
    SEGMENTS_PREFIX,
    Manifest,
    manifest_base,
    manifest_name,
    segment_base,
)
from aerobee.store.tier.objects import CHUNK_BYTES, ObjectMissing, Objects, read_whole
from aerobee.store.tier.uploads import OnChunk, find_manifest, verify_object


class FindingKind(StrEnum):
    """What can be wrong."""

    MANIFEST_DAMAGED = "manifest damaged"
    CHAIN_BROKEN = "chain broken"
    OBJECT_MISSING = "object missing"
    OBJECT_DAMAGED = "object damaged"
    STORE_DIFFERS = "store differs"
    LEFT_OVER = "left-over"

    @property
    def is_damage(self) -> bool:
        """Left-overs are harmless: a master removes them."""
        return self is not FindingKind.LEFT_OVER


@dataclass(frozen=True, slots=True)
class TierFinding:
    """One thing that is not as it should be."""

    kind: FindingKind
    name: str
    """The object."""
    text: str


@dataclass(slots=True)
class Chain:
    """The manifests that could be read, in the order of the log."""

    manifests: list[Manifest] = field(default_factory=list)
    findings: list[TierFinding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not any(finding.kind.is_damage for finding in self.findings)

    @property
    def newest_part(self) -> Sequence[Manifest]:
        """The manifests that lead to the newest one without a break."""
        first = len(self.manifests) - 1
        while first > 0 and self.manifests[first].follows(self.manifests[first - 1]):
            first -= 1
        return self.manifests[max(first, 0) :]


def read_chain(objects: Objects) -> Chain:
    """All manifests. Raises TierUnavailable."""
    chain = Chain()
    bases = [manifest_base(found.name) for found in objects.list(CHAIN_PREFIX)]
    for base in sorted(base for base in bases if base is not None):
        try:
            manifest = find_manifest(objects, base)
        except TierDamaged as error:
            finding = TierFinding(FindingKind.MANIFEST_DAMAGED, manifest_name(base), str(error))
            chain.findings.append(finding)
            continue
        if manifest is not None:
            chain.manifests.append(manifest)
    chain.findings += breaks_of(chain.manifests)
    return chain


def breaks_of(manifests: Sequence[Manifest]) -> Iterable[TierFinding]:
    """PURE: where manifests in the order of the log do not continue each other. The first one may
    name a manifest that was forgotten."""
    for earlier, later in pairwise(manifests):
        if later.follows(earlier):
            continue
        if later.base != earlier.end:
            text = f"the tier lacks the log from {earlier.end} to {later.base}"
        elif not later.previous:
            text = f"a new chain begins at {later.base}, after one that ended there"
        else:
            text = f"it continues another segment than the one from {earlier.base}"
        yield TierFinding(FindingKind.CHAIN_BROKEN, manifest_name(later.base), text)


def verify_objects(
    objects: Objects,
    chain: Chain,
    *,
    is_whole: bool,
    on_segment: Callable[[int], None] = lambda _: None,
    on_chunk: OnChunk = lambda _: None,
) -> None:
    """Add what is wrong with the objects that the chain names, and those that it does not.

    `is_whole`: read every byte; otherwise only sizes are compared. `on_segment` gets the number of
    each segment that was checked. Raises TierUnavailable.
    """
    listed = {found.name: found.size_bytes for found in objects.list(SEGMENTS_PREFIX)}
    named: set[str] = set()
    for number, manifest in enumerate(chain.manifests, 1):
        named |= {manifest.object_name, manifest.tables_name}
        _verify_segment(objects, chain, manifest, listed, is_whole=is_whole, on_chunk=on_chunk)
        _verify_tables(objects, chain, manifest)
        on_segment(number)
    for name in sorted(listed.keys() - named):
        base = segment_base(name)
        where = "of no segment" if base is None else f"of the segment at {base}"
        text = f"no manifest names this object {where}"
        chain.findings.append(TierFinding(FindingKind.LEFT_OVER, name, text))


def _verify_segment(
    objects: Objects,
    chain: Chain,
    manifest: Manifest,
    listed: dict[str, int],
    *,
    is_whole: bool,
    on_chunk: OnChunk,
) -> None:
    name, size = manifest.object_name, manifest.size_bytes
    try:
        if is_whole:
            verify_object(objects, name, size, manifest.crc32, on_chunk)
        # The listing may be old.
        elif listed.get(name) != size and len(objects.read(name, size - 1, 2)) != 1:
            raise TierDamaged(f"{name} in the tier does not have {size} bytes: restore it")
    except ObjectMissing:
        text = f"the bytes of the log from {manifest.base} to {manifest.end} are gone: restore them"
        chain.findings.append(TierFinding(FindingKind.OBJECT_MISSING, name, text))
    except TierDamaged as error:
        chain.findings.append(TierFinding(FindingKind.OBJECT_DAMAGED, name, str(error)))


def _verify_tables(objects: Objects, chain: Chain, manifest: Manifest) -> None:
    name = manifest.tables_name
    try:
        data = read_whole(objects, name)
    except ObjectMissing:
        text = "the tables beside the segment are gone"
        chain.findings.append(TierFinding(FindingKind.OBJECT_MISSING, name, text))
        return
    if sha256(data).hexdigest() != manifest.tables_sha256:
        text = "the tables beside the segment are not those that were written"
        chain.findings.append(TierFinding(FindingKind.OBJECT_DAMAGED, name, text))


def compare_store(chain: Chain, disk: Disk, on_chunk: OnChunk = lambda _: None) -> int:
    """Add where a store folder has other bytes than the tier, by the manifests' checksums; returns
    how many segments were compared. A broker may be using the folder. Raises OSError."""
    local = {entry.name: entry.size_bytes for entry in disk.list(COMMIT_LOG_DIRECTORY)}
    compared = 0
    for manifest in chain.manifests:
        if file_name(manifest.base) not in local:
            continue
        path = segment_path(manifest.base)
        if _crc32_of(disk, path, manifest.size_bytes, on_chunk) != manifest.crc32:
            text = f"{path} of the store has other bytes: another log, or one of both is damaged"
            name = manifest.object_name
            chain.findings.append(TierFinding(FindingKind.STORE_DIFFERS, name, text))
        compared += 1
    return compared


def _crc32_of(disk: Disk, path: str, size: int, on_chunk: OnChunk) -> int | None:
    """Of a file; None: it has another size."""
    file = disk.open_file(path, read_only=True)
    try:
        if file.size() != size:
            return None
        found = 0
        for at in range(0, size, CHUNK_BYTES):
            chunk = file.read_at(at, min(CHUNK_BYTES, size - at))
            on_chunk(len(chunk))
            found = crc32(chunk, found)
        return found
    finally:
        file.close()
