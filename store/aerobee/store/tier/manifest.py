"""PURE: what a tier holds of one segment of the log, and how its manifests form a chain.

    chain/00000000001073741824.json                    one manifest for each segment
    segments/00000000001073741824/0000000005-9f3c..    its bytes, by epoch and writer
    segments/00000000001073741824/0000000005-9f3c...tables    topics and groups at that time
    forgotten/00000000000000000000                     an operator has removed it for good

Owns: a manifest's bytes, the names of objects, and when two logs agree on a segment.

A manifest is written once, after the bytes it names were read back, and under a name that only one
writer can create. So it decides for good which bytes are the segment's; any others of the same
segment are left-overs. It repeats the SHA-256 of the manifest before it: a chain that lacks a part,
or has one of another tier, is noticed.

Two masters may hold different logs after an unclean election, and every cluster counts its epochs
from 1. So a log agrees with a manifest if both have the epoch of the segment's last byte, with the
same beginning, and the segment's first bytes are equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from aerobee.runtime.errors import TierDamaged
from aerobee.store.format.epoch_file import EpochEntry
from aerobee.store.format.names import file_name

CHAIN_PREFIX: Final = "chain/"
SEGMENTS_PREFIX: Final = "segments/"
MARKS_PREFIX: Final = "forgotten/"
HEAD_BYTES: Final = 64 * 1024
"""How many of a segment's first bytes a log compares with a manifest."""

_SUFFIX: Final = ".json"
_FORMAT: Final = 1
_NUMBER_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One segment in the tier."""

    base: int
    """The log offset of its first byte."""
    end: int
    """The log offset after its last byte."""
    object_name: str
    """Where its bytes are."""
    crc32: int
    """Of all its bytes."""
    head_sha256: str
    """Of its first `HEAD_BYTES`."""
    tables_sha256: str
    """Of the tables beside it."""
    epochs: tuple[EpochEntry, ...]
    """The epochs of the log up to its end, with their first offsets, oldest first; an epoch without
    bytes is left out."""
    epoch: int
    """The epoch of the master that wrote the manifest."""
    written_ms: int
    """When the segment was last written to, in Unix time."""
    uploaded_ms: int
    """When the manifest was made, by the master's clock."""
    previous: str = ""
    """The SHA-256 of the manifest of the segment before; empty: the chain begins here."""

    @property
    def size_bytes(self) -> int:
        return self.end - self.base

    @property
    def tables_name(self) -> str:
        """Where the tables are."""
        return tables_name(self.object_name)

    @property
    def last_epoch(self) -> EpochEntry | None:
        """The epoch of the last byte; None if the log had no epochs."""
        return self.epochs[-1] if self.epochs else None

    def encode(self) -> bytes:
        """The object's bytes; equal manifests have equal bytes."""
        document = {
            "format": _FORMAT,
            "base": self.base,
            "end": self.end,
            "object": self.object_name,
            "crc32": self.crc32,
            "headSha256": self.head_sha256,
            "tablesSha256": self.tables_sha256,
            "epochs": [list(entry) for entry in self.epochs],
            "epoch": self.epoch,
            "writtenMs": self.written_ms,
            "uploadedMs": self.uploaded_ms,
            "previous": self.previous,
        }
        return _text({**document, "sha256": _checksum(document)})

    @property
    def digest(self) -> str:
        """What the next manifest repeats."""
        return hashlib.sha256(self.encode()).hexdigest()

    def follows(self, previous: Manifest) -> bool:
        """Whether it continues the chain after `previous`."""
        return self.base == previous.end and self.previous == previous.digest

    def agrees(self, local: LocalSegment) -> bool:
        """Whether a log's segment is the one that was uploaded."""
        return (
            (self.base, self.end) == (local.base, local.end)
            and self.last_epoch == (local.epochs[-1] if local.epochs else None)
            and self.head_sha256 == local.head_sha256
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSegment:
    """A sealed segment of a log, as far as it is compared with a manifest."""

    base: int
    end: int
    epochs: tuple[EpochEntry, ...]
    head_sha256: str


def decode_manifest(data: bytes) -> Manifest:
    """Raises TierDamaged for anything but a whole manifest of a known format."""
    try:
        document: dict[str, Any] = json.loads(data)
        if document.get("format") != _FORMAT:
            raise TierDamaged(
                f"a manifest has format {document.get('format')!r}, this version knows {_FORMAT}: "
                "use the version that wrote it, or a newer one"
            )
        checksum = document.pop("sha256")
        if checksum != _checksum(document):
            raise ValueError("its checksum does not match")
        manifest = Manifest(
            base=_number(document["base"]),
            end=_number(document["end"]),
            object_name=_str(document["object"]),
            crc32=_number(document["crc32"]),
            head_sha256=_str(document["headSha256"]),
            tables_sha256=_str(document["tablesSha256"]),
            epochs=tuple((_number(epoch), _number(start)) for epoch, start in document["epochs"]),
            epoch=_number(document["epoch"]),
            written_ms=_number(document["writtenMs"]),
            uploaded_ms=_number(document["uploadedMs"]),
            previous=_str(document["previous"]),
        )
        if not manifest.base < manifest.end:
            raise ValueError("it covers no bytes")
        if manifest.encode() != data:
            raise ValueError("its bytes are not those of its content")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TierDamaged(
            f"a manifest cannot be read ({error}): restore the object, or run `aerobee tier "
            "verify` to see what is left"
        ) from error
    return manifest


def epochs_up_to(epochs: Sequence[EpochEntry], end: int) -> tuple[EpochEntry, ...]:
    """The epochs that have bytes before `end`. Replicas may differ in those that have none."""
    begun = [(epoch, start) for epoch, start in epochs if start < end]
    with_bytes = [this for this, following in pairwise(begun) if this[1] < following[1]]
    return (*with_bytes, *begun[-1:])


# ---------------------------------------------------------------------------------- names


def manifest_name(base: int) -> str:
    return f"{CHAIN_PREFIX}{file_name(base)}{_SUFFIX}"


def manifest_base(name: str) -> int | None:
    """The segment that a listed manifest is about; None: it is no manifest."""
    digits = name.removeprefix(CHAIN_PREFIX).removesuffix(_SUFFIX)
    is_number = len(digits) == len(file_name(0)) and digits.isascii() and digits.isdigit()
    return int(digits) if is_number and manifest_name(int(digits)) == name else None


def mark_name(base: int) -> str:
    """The object that says that an operator has removed a segment."""
    return f"{MARKS_PREFIX}{file_name(base)}"


def segment_folder(base: int) -> str:
    """What the names of a segment's objects begin with."""
    return f"{SEGMENTS_PREFIX}{file_name(base)}/"


def segment_object_name(base: int, *, epoch: int, writer: str) -> str:
    """`writer` is a name that no other upload uses."""
    return f"{segment_folder(base)}{epoch:010d}-{writer}"


def tables_name(object_name: str) -> str:
    """The object with the tables, beside the one with the bytes."""
    return f"{object_name}.tables"


def segment_base(name: str) -> int | None:
    """The segment that a listed object belongs to; None: it is no segment's."""
    folder, _, rest = name.removeprefix(SEGMENTS_PREFIX).partition("/")
    is_number = len(folder) == len(file_name(0)) and folder.isascii() and folder.isdigit()
    belongs = is_number and bool(rest) and name.startswith(segment_folder(int(folder)))
    return int(folder) if belongs else None


# ---------------------------------------------------------------------------------- inside


def _text(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def _checksum(document: dict[str, Any]) -> str:
    return hashlib.sha256(_text(document)).hexdigest()


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
        raise ValueError(f"{value!r:.40} is not a number that fits")
    return value


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is not text")
    return value
