"""Keys of records whose properties all have the same layout: the usual batch of one producer.

Where the first record has a name or a separator, every other record has the same byte, so its keys
are in the same columns of all rows. This is checked, not assumed; if it does not hold, the answer
is None, and the caller must look at each record's bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

UInt8Array = npt.NDArray[np.uint8]
UInt32Array = npt.NDArray[np.uint32]

_KEY_BYTES_MAX: Final = 256
_KEYS_MAX: Final = 8
# Powers of 31 modulo 2^32, highest first; the last one is 1.
_POWERS: Final[UInt32Array] = np.concatenate(
    (
        np.cumprod(np.full(_KEY_BYTES_MAX, 31, np.uint32), dtype=np.uint32)[::-1],
        np.ones(1, np.uint32),
    )
)


@dataclass(slots=True)
class _Layout:
    """Where names, values and keys are in one record's properties.

    In a record with this layout, byte p is at least `lowest[p]`, by less than `span[p]`.
    """

    lowest: UInt8Array
    span: UInt8Array
    keys: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, properties: bytes) -> _Layout:
        layout = cls(np.frombuffer(properties, np.uint8).copy(), np.ones(len(properties), np.uint8))
        last: dict[bytes, int] = {}
        at = 0
        for segment in properties.split(b"\x02"):
            name, _, value = segment.partition(b"\x01")
            if name and value:
                start = at + len(name) + 1
                last[name] = start
                # Anything but a separator.
                layout._allow(start, start + len(value), 3, 253)
            at += len(segment) + 1
        if (start := last.get(b"UNIQ_KEY", 0)) > 0:
            layout._add_key(start, properties.find(b"\x02", start))
        if (start := last.get(b"KEYS", 0)) > 0:
            layout._add_several(properties, start)
        return layout

    def _allow(self, start: int, end: int, lowest: int, span: int) -> None:
        self.lowest[start:end] = lowest
        self.span[start:end] = span

    def _add_key(self, start: int, end: int) -> None:
        if end < 0:
            end = len(self.lowest)
        # Spaces divide keys, and non-ASCII characters are hashed differently.
        self._allow(start, end, 0x21, 0x80 - 0x21)
        self.keys.append((start, end))

    def _add_several(self, properties: bytes, start: int) -> None:
        end = properties.find(b"\x02", start)
        value = properties[start : end if end >= 0 else len(properties)]
        self._allow(start, start + len(value), ord(" "), 1)
        for key in value.split(b" "):
            if key:
                self._add_key(start, start + len(key))
            start += len(key) + 1


def hash_columns(rows: UInt8Array, prefixes: int | UInt32Array) -> UInt32Array | None:
    """The hashes of a matrix of equally long properties: one row per record, one column per key.

    `prefixes` are the hashes of `topic#`. None if the rows differ in more than their values, or
    have keys that are not ASCII, very long or numerous.
    """
    layout = _Layout.of(rows[0].tobytes())
    if len(layout.keys) > _KEYS_MAX:
        return None
    if not bool(((rows - layout.lowest) < layout.span).all()):
        return None
    if any(end - start > _KEY_BYTES_MAX for start, end in layout.keys):
        return None
    hashes = np.empty((len(rows), len(layout.keys)), np.uint32)
    prefix = np.asarray(prefixes, np.uint32)
    for column, (start, end) in enumerate(layout.keys):
        width = end - start
        key_hashes = rows[:, start:end].astype(np.uint32) @ _POWERS[-width:]
        np.add(key_hashes, prefix * _POWERS[-width - 1], out=hashes[:, column])
    return hashes
