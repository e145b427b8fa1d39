"""Records that belong to further queues besides their own: Apache's light message queues.

Such a record names its queues in one property and its offsets in them in another, in the same
order. Only Apache's broker assigns those offsets; here they are restored in queues that must be
completed or rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aerobee.store.engine.log.log_walk import WalkedChunk
from aerobee.store.format.names import LIGHT_QUEUE_PREFIX
from aerobee.store.format.properties import PropertyName, find_property

_LIGHT_QUEUE_ID = 0
_NAMES = PropertyName.INNER_MULTI_DISPATCH.encode()
_OFFSETS = PropertyName.INNER_MULTI_QUEUE_OFFSET.encode()


class LightEntries(NamedTuple):
    """Records of a chunk, by their indexes, in one light queue."""

    topic: str
    queue_id: int
    indexes: npt.NDArray[np.intp]
    offsets: npt.NDArray[np.int64]


def light_entries(chunk: WalkedChunk, chosen: Iterable[int]) -> Iterator[LightEntries]:
    """For each light queue named in the chunk, the places of the chosen records in it."""
    if not chunk.result.may_name_queues:
        return
    found: dict[str, list[tuple[int, int]]] = {}
    for index in chosen:
        for name, offset in _queues_of(chunk, index):
            found.setdefault(name, []).append((index, offset))
    for name, places in found.items():
        indexes, offsets = zip(*places, strict=True)
        yield LightEntries(
            name, _LIGHT_QUEUE_ID, np.array(indexes, np.intp), np.array(offsets, np.int64)
        )


def _queues_of(chunk: WalkedChunk, index: int) -> list[tuple[str, int]]:
    """Empty if the two properties do not match each other."""
    result = chunk.result
    start = int(result.properties_starts[index])
    end = int(result.positions[index] + result.sizes[index])
    names = find_property(chunk.data, start, end, _NAMES)
    offsets = find_property(chunk.data, start, end, _OFFSETS)
    if names is None or offsets is None:
        return []
    try:
        pairs = zip(names.decode().split(","), offsets.decode().split(","), strict=True)
        return [(name, int(text)) for name, text in pairs if name.startswith(LIGHT_QUEUE_PREFIX)]
    except ValueError:
        return []
