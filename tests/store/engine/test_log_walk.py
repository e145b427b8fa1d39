"""The walk over a log's records, chunk by chunk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.log.log_walk import LogWalk
from aerobee.store.engine.log.segment import Segment
from aerobee.store.format.tags import TagsCodes
from tests.support.stores import (
    append,
    log_records,
    open_store,
)


@pytest.mark.thorough
def test_a_walk_finds_every_record_whatever_the_size_of_its_chunks(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    chance = random.Random(11)
    for _ in range(25):
        append(store, "Orders", 0, chance.randbytes(chance.choice([0, 9, 60, 500])))
    expected = [record.physical_offset for record in log_records(store)]
    segments = [Segment(info.base, 4096, info.wrote_position) for info in store.log.segments()]
    assert len(segments) > 1
    for chunk_bytes in [*range(1, 120), *range(120, 700, 7), 4095, 4096, 10_000]:
        for end in (None, store.appended_end):
            walk = LogWalk(
                RealDisk(tmp_path),
                segments,
                0,
                tags=TagsCodes(),
                check_crc=True,
                chunk_bytes=chunk_bytes,
                end=end,
            )
            found = [chunk.position + at for chunk in walk for at in chunk.result.positions]
            assert found == expected, chunk_bytes
            assert walk.end == store.appended_end
        for number in (0, len(expected) // 2, len(expected) - 1):
            walk = LogWalk(
                RealDisk(tmp_path),
                segments,
                expected[number] // 4096,
                tags=TagsCodes(),
                check_crc=True,
                chunk_bytes=chunk_bytes,
                start=expected[number],
            )
            found = [chunk.position + at for chunk in walk for at in chunk.result.positions]
            assert (found, walk.end) == (expected[number:], store.appended_end)
