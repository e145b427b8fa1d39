"""Records larger than what recovery reads at once: read if they may be whole, else not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.store.engine.disk import RealDisk, RealDiskFile
from aerobee.store.engine.log.torn_records import HEAD_BYTES_MAX, lengths_add_up
from aerobee.store.format.record import HostAddress, encode_record
from tests.support.stores import SMALL, append, crashed_copy, open_store, read_queue

CONFIG = replace(SMALL, segment_bytes=1 << 22, recovery_chunk_bytes=4096)
HOSTS = [HostAddress.parse("127.0.0.1:50000"), HostAddress.parse("[::1]:50000")]


def test_a_torn_record_is_not_read_by_the_size_that_it_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "running", CONFIG)
    append(store, "Orders", 0, b"whole")
    end = store.appended_end
    append(store, "Orders", 0, bytes(3_000_000))
    crashed = crashed_copy(tmp_path / "running", tmp_path / "crashed")
    sizes: list[int] = []
    read_at = RealDiskFile.read_at

    def seen(file: RealDiskFile, offset: int, size: int) -> bytes:
        sizes.append(size)
        return read_at(file, offset, size)

    monkeypatch.setattr(RealDiskFile, "read_at", seen)
    whole = open_store(crashed, CONFIG, read_only=True)
    assert read_queue(whole, "Orders", 0) == [b"whole", bytes(3_000_000)]
    assert max(sizes) > 3_000_000
    (segment,) = (crashed / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(end)
        file.write((3_100_000).to_bytes(4, "big"))
    sizes.clear()
    torn = open_store(crashed, CONFIG, read_only=True)
    assert read_queue(torn, "Orders", 0) == [b"whole"]
    assert max(sizes) <= 1 << 20


@pytest.mark.parametrize("born", HOSTS)
@pytest.mark.parametrize("topic", [b"Orders", b"T" * 200])
@pytest.mark.parametrize("properties", [b"", b"KEYS\x01k\x02" * 300])
def test_only_the_true_size_is_the_sum_of_a_records_lengths(
    tmp_path: Path, born: HostAddress, topic: bytes, properties: bytes
) -> None:
    record = encode_record(
        topic=topic,
        body=bytes(700),
        properties=properties,
        sys_flag=0x10 if ":" in str(born)[:-6] else 0,
        born_timestamp_ms=1,
        born_host=born,
    )
    (tmp_path / "file").write_bytes(b"before" + record + bytes(5_000))
    file = RealDisk(tmp_path).open_file("file", read_only=True)
    sizes = range(HEAD_BYTES_MAX + 1, len(record) + 4_000)
    assert [size for size in sizes if lengths_add_up(file, 6, size)] == [len(record)]
