"""A segment gets into the tier once, whole and verified, whatever fails on the way and whoever else
tries: then nothing else of it is left there."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import TierDamaged, TierUnavailable
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY, segment_path
from aerobee.store.tier.folder_objects import FolderObjects
from aerobee.store.tier.manifest import (
    LocalSegment,
    Manifest,
    manifest_name,
    segment_object_name,
)
from aerobee.store.tier.objects import CHUNK_BYTES, ObjectMissing, Objects
from aerobee.store.tier.uploads import (
    Upload,
    Writer,
    check_agrees,
    find_manifest,
    local_segment,
    tidy_segment,
    tidy_tier,
    verify_object,
)
from tests.support.faulty_objects import (
    FaultyObjects,
    Killed,
    MemoryObjects,
    fails_at,
    fails_often,
)

SIZE = 3_000
TABLES = b"{}"
ME, OTHER = Writer(3, "me"), Writer(4, "other")


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    """A folder with four segments of a log."""
    disk = RealDisk(tmp_path)
    disk.make_directory(COMMIT_LOG_DIRECTORY)
    for number in range(4):
        file = disk.open_file(segment_path(number * SIZE), create=True)
        file.write_at(0, (random.Random(number).randbytes(SIZE),))
        file.close()
    return disk


def local(disk: RealDisk, number: int = 0) -> LocalSegment:
    return local_segment(disk, number * SIZE, (number + 1) * SIZE, ((1, 0), (3, 700)))


def upload(
    objects: Objects,
    disk: RealDisk,
    number: int = 0,
    previous: Manifest | None = None,
    writer: Writer = ME,
) -> Manifest:
    return Upload(
        objects, disk, local(disk, number), previous, writer, tables=TABLES, written_ms=5, now_ms=7
    ).run()


def check_there(objects: MemoryObjects, disk: RealDisk, *numbers: int) -> None:
    """These segments are there whole, and nothing else is."""
    names = []
    for number in numbers:
        manifest = find_manifest(objects, number * SIZE)
        assert manifest is not None
        data = disk.read_file(segment_path(number * SIZE))
        assert objects.held[manifest.object_name] == data
        assert manifest.crc32 == crc32(data)
        names += [manifest_name(number * SIZE), manifest.object_name, manifest.tables_name]
    assert sorted(objects.held) == sorted(names), "no orphans"


def test_segments_in_the_tier_form_a_chain(disk: RealDisk) -> None:
    objects = MemoryObjects()
    first = upload(objects, disk)
    second = upload(objects, disk, 1, first)
    assert second.follows(first)
    assert second.epochs == ((1, 0), (3, 700))
    check_there(objects, disk, 0, 1)


def test_a_segment_that_is_there_is_not_written_again(disk: RealDisk) -> None:
    objects = FaultyObjects()
    first = upload(objects, disk)
    objects.calls.clear()
    again = Upload(objects, disk, local(disk), None, OTHER, tables=TABLES, written_ms=5, now_ms=7)
    assert again.run() == first
    assert again.uploaded_bytes == 0
    assert not [call for call in objects.calls if call.startswith(("put", "create"))]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("is_answer_lost", [False, True])
@pytest.mark.parametrize("kind", [TierUnavailable, Killed])
def test_whatever_call_fails_the_next_round_completes_it_without_orphans(
    disk: RealDisk, kind: type[BaseException], is_answer_lost: bool, half: bool
) -> None:
    """A killed process comes back as another writer."""
    undisturbed = FaultyObjects()
    upload(undisturbed, disk)
    assert len(undisturbed.calls) >= 6, "look, write, verify, decide, tidy"
    # What is not an answer cannot be lost: a list is a hint in any case.
    for number in range(1, len(undisturbed.calls) + (not is_answer_lost)):
        objects = FaultyObjects()
        objects.half = half
        fault = fails_at(number, kind)
        if is_answer_lost:
            objects.after = fault
        else:
            objects.before = fault
        with pytest.raises(kind):
            upload(objects, disk)
        objects.before = objects.after = lambda number: None
        upload(objects, disk, writer=OTHER if kind is Killed else ME)
        check_there(objects.real, disk, 0)


def test_two_masters_at_once_never_harm_each_other(disk: RealDisk) -> None:
    """One runs as a whole before any call of the other."""
    number = 0
    while True:
        number += 1
        objects = FaultyObjects()

        def interject(at: int, wanted: int = number, objects: FaultyObjects = objects) -> None:
            if at == wanted:
                upload(objects.real, disk, writer=OTHER)

        objects.before = interject
        mine = upload(objects, disk)
        if len(objects.calls) < number:
            break
        check_there(objects.real, disk, 0)
        assert mine == find_manifest(objects.real, 0), "both go on from the same manifest"
    assert number >= 6


def test_a_left_over_is_not_removed_before_a_manifest_has_decided(disk: RealDisk) -> None:
    """Its writer may be about to name it."""
    objects = MemoryObjects()
    name = segment_object_name(0, epoch=9, writer="slow")
    objects.put(name, [disk.read_file(segment_path(0))])
    dying = FaultyObjects(objects)
    dying.before = fails_at(6, Killed)
    with pytest.raises(Killed):
        upload(dying, disk)
    assert dying.calls[-1].startswith("create")
    assert name in objects.held
    upload(objects, disk)
    check_there(objects, disk, 0)


def test_a_stale_list_hides_a_left_over_until_the_next_round(disk: RealDisk) -> None:
    objects = FaultyObjects()
    objects.real.put(segment_object_name(0, epoch=1, writer="dead"), [b"x"])
    objects.listed = {}
    manifest = upload(objects, disk)
    objects.listed = None
    assert tidy_segment(objects, manifest) == 1
    check_there(objects.real, disk, 0)


def test_left_overs_of_all_segments_are_found_by_one_listing(disk: RealDisk) -> None:
    objects = FaultyObjects()
    first = upload(objects, disk)
    upload(objects, disk, 1, first)
    for number in range(3):  # that of the third may still be decided for
        objects.real.put(segment_object_name(number * SIZE, epoch=1, writer="dead"), [b"x"])
    objects.calls.clear()
    assert tidy_tier(objects) == 2
    assert objects.calls[0] == "list segments/"
    objects.real.remove(segment_object_name(2 * SIZE, epoch=1, writer="dead"))
    check_there(objects.real, disk, 0, 1)


def test_many_faults_lose_nothing(disk: RealDisk) -> None:
    for seed in range(100):
        chance = random.Random(seed)
        objects = FaultyObjects()
        objects.half = True
        objects.before = fails_often(chance, 0.25)
        objects.after = fails_often(chance, 0.25)
        previous: Manifest | None = None
        for number in range(3):
            for attempt in range(1_000):
                try:
                    writer = Writer(attempt, f"w{attempt}")
                    previous = upload(objects, disk, number, previous, writer)
                except TierUnavailable:
                    continue
                break
        check_there(objects.real, disk, 0, 1, 2)


def test_another_logs_segment_is_refused_and_stays(disk: RealDisk, tmp_path: Path) -> None:
    objects = MemoryObjects()
    upload(objects, disk)
    before = dict(objects.held)
    other = RealDisk(tmp_path)
    file = other.open_file(segment_path(0))
    file.write_at(0, (b"another log",))
    file.close()
    with pytest.raises(TierDamaged, match="of another log than this broker's"):
        upload(objects, other)
    assert objects.held == before


def test_a_log_of_another_epoch_is_refused(disk: RealDisk) -> None:
    manifest = upload(MemoryObjects(), disk)
    with pytest.raises(TierDamaged, match="unclean election"):
        check_agrees(manifest, replace(local(disk), epochs=((1, 0), (4, 700))))


def test_a_store_that_returns_other_bytes_gets_no_manifest(disk: RealDisk) -> None:
    class Lossy(MemoryObjects):
        def read(self, name: str, start: int, size: int) -> bytes:
            data = super().read(name, start, size)
            return data[:-1] + b"\0" if data and name.startswith("segments/") else data

    objects = Lossy()
    with pytest.raises(TierDamaged, match="other bytes than were written"):
        upload(objects, disk)
    assert find_manifest(objects, 0) is None


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_an_object_is_as_long_as_it_should_be(size: int) -> None:
    data = random.Random(size).randbytes(size)
    objects = MemoryObjects()
    objects.put("x", [data])
    verify_object(objects, "x", size, crc32(data))
    objects.put("x", [data, b"!"])
    with pytest.raises(TierDamaged, match="bytes or more"):
        verify_object(objects, "x", size, crc32(data))
    objects.put("x", [data[:-1]])
    if size:
        with pytest.raises(TierDamaged):
            verify_object(objects, "x", size, crc32(data))
    objects.remove("x")
    with pytest.raises(ObjectMissing):
        verify_object(objects, "x", size, crc32(data))


def test_a_folder_does_the_same(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "mount").mkdir()
    objects = FolderObjects(tmp_path / "mount", "cluster/broker", SystemClock())
    first = upload(objects, disk)
    upload(objects, disk, 1, first)
    objects.put(segment_object_name(0, epoch=1, writer="dead"), [b"x"])
    assert tidy_segment(objects, first) == 1
    assert [found.name for found in objects.list("chain/")] == [
        manifest_name(0),
        manifest_name(SIZE),
    ]
    sizes = [found.size_bytes for found in objects.list("segments/")]
    assert sizes == [SIZE, len(TABLES), SIZE, len(TABLES)]
