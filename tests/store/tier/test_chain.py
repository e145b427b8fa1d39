"""What is missing, cut, swapped or foreign in a tier is found; what is restored is whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.errors import InvalidArgument, TierDamaged
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY, segment_path
from aerobee.store.tier.chain import Chain, FindingKind, read_chain, verify_objects
from aerobee.store.tier.forgetting import at_or_after, before, forget, older_than
from aerobee.store.tier.manifest import Manifest, manifest_name, segment_object_name
from aerobee.store.tier.restoring import restore
from aerobee.store.tier.tables import pack_tables
from aerobee.store.tier.uploads import Upload, Writer, local_segment, was_forgotten
from tests.support.faulty_objects import FaultyObjects, Killed, MemoryObjects, fails_at

SIZE = 3_000
COUNT = 4
TOPICS = b'{"topicConfigTable":{}}'


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    """A folder with segments of a log, and a table."""
    (tmp_path / "store").mkdir()
    disk = RealDisk(tmp_path / "store")
    for folder in (COMMIT_LOG_DIRECTORY, "config"):
        disk.make_directory(folder)
    for number in range(COUNT):
        write(disk, segment_path(number * SIZE), random.Random(number).randbytes(SIZE))
    write(disk, "config/topics.json", TOPICS)
    return disk


@pytest.fixture
def objects(disk: RealDisk) -> MemoryObjects:
    """A tier with all of them."""
    objects = MemoryObjects()
    previous: Manifest | None = None
    for number in range(COUNT):
        local = local_segment(disk, number * SIZE, (number + 1) * SIZE, ((1, 0), (2, 4_000)))
        previous = Upload(
            objects,
            disk,
            local,
            previous,
            Writer(2, "w"),
            tables=pack_tables(disk),
            written_ms=1,
            now_ms=2,
        ).run()
    return objects


def write(disk: RealDisk, path: str, data: bytes) -> None:
    file = disk.open_file(path, create=True)
    file.write_at(0, (data,))
    file.close()


def verified(objects: MemoryObjects, *, is_whole: bool = True) -> Chain:
    chain = read_chain(objects)
    verify_objects(objects, chain, is_whole=is_whole)
    return chain


def test_a_tier_as_it_should_be_is_sound(objects: MemoryObjects) -> None:
    chain = verified(objects)
    assert chain.is_sound
    assert not chain.findings
    assert len(chain.newest_part) == COUNT


def object_of(number: int) -> str:
    return segment_object_name(number * SIZE, epoch=2, writer="w")


def lost(held: dict[str, bytes]) -> None:
    del held[object_of(1)]


def cut(held: dict[str, bytes]) -> None:
    held[object_of(1)] = held[object_of(1)][:-1]


def longer(held: dict[str, bytes]) -> None:
    held[object_of(1)] += b"!"


def swapped(held: dict[str, bytes]) -> None:
    held[object_of(1)], held[object_of(2)] = held[object_of(2)], held[object_of(1)]


def one_bit(held: dict[str, bytes]) -> None:
    held[object_of(2)] = bytes([held[object_of(2)][0] ^ 1]) + held[object_of(2)][1:]


def manifest_lost(held: dict[str, bytes]) -> None:
    del held[manifest_name(SIZE)]


def manifest_cut(held: dict[str, bytes]) -> None:
    held[manifest_name(SIZE)] = held[manifest_name(SIZE)][:-9]


def manifest_of_another_segment(held: dict[str, bytes]) -> None:
    held[manifest_name(SIZE)] = held[manifest_name(2 * SIZE)]


def tables_lost(held: dict[str, bytes]) -> None:
    del held[f"{object_of(3)}.tables"]


def tables_changed(held: dict[str, bytes]) -> None:
    held[f"{object_of(3)}.tables"] = b"{}"


@pytest.mark.parametrize(
    ("damage", "kinds"),
    [
        (lost, {FindingKind.OBJECT_MISSING}),
        (cut, {FindingKind.OBJECT_DAMAGED}),
        (longer, {FindingKind.OBJECT_DAMAGED}),
        (swapped, {FindingKind.OBJECT_DAMAGED}),
        (one_bit, {FindingKind.OBJECT_DAMAGED}),
        (manifest_lost, {FindingKind.CHAIN_BROKEN, FindingKind.LEFT_OVER}),
        (
            manifest_cut,
            {FindingKind.MANIFEST_DAMAGED, FindingKind.CHAIN_BROKEN, FindingKind.LEFT_OVER},
        ),
        (
            manifest_of_another_segment,
            {FindingKind.MANIFEST_DAMAGED, FindingKind.CHAIN_BROKEN, FindingKind.LEFT_OVER},
        ),
        (tables_lost, {FindingKind.OBJECT_MISSING}),
        (tables_changed, {FindingKind.OBJECT_DAMAGED}),
    ],
)
def test_every_damage_is_found(
    objects: MemoryObjects,
    damage: Callable[[dict[str, bytes]], None],
    kinds: set[FindingKind],
    tmp_path: Path,
) -> None:
    damage(objects.held)
    chain = verified(objects)
    assert not chain.is_sound
    assert {finding.kind for finding in chain.findings} == kinds
    (tmp_path / "again").mkdir()
    if FindingKind.CHAIN_BROKEN not in kinds and damage is not longer:
        with pytest.raises(TierDamaged):
            restore(objects, chain.newest_part, RealDisk(tmp_path / "again"))
        assert not (tmp_path / "again" / "commitlog").exists(), "no store was made"


@pytest.mark.parametrize("damage", [lost, cut, longer])
def test_a_quick_check_finds_what_sizes_show(
    objects: MemoryObjects, damage: Callable[[dict[str, bytes]], None]
) -> None:
    damage(objects.held)
    assert not verified(objects, is_whole=False).is_sound


def test_a_manifest_of_another_chain_is_a_break(objects: MemoryObjects) -> None:
    manifest = read_chain(objects).manifests[2]
    objects.held[manifest_name(manifest.base)] = replace(manifest, previous="ab" * 32).encode()
    chain = verified(objects)
    assert [finding.text for finding in chain.findings] == [
        f"it continues another segment than the one from {SIZE}",
        f"it continues another segment than the one from {2 * SIZE}",
    ]


def test_an_old_listing_is_no_damage(objects: MemoryObjects) -> None:
    faulty = FaultyObjects(objects)
    faulty.listed = {"chain/": objects.list("chain/")}
    chain = read_chain(faulty)
    verify_objects(faulty, chain, is_whole=False)
    assert not chain.findings


def test_what_is_restored_is_what_was_uploaded(
    objects: MemoryObjects, disk: RealDisk, tmp_path: Path
) -> None:
    (tmp_path / "again").mkdir()
    again = RealDisk(tmp_path / "again")
    restore(objects, read_chain(objects).newest_part, again)
    for number in range(COUNT):
        path = segment_path(number * SIZE)
        assert again.read_file(path) == disk.read_file(path)
    assert again.read_file(segment_path(COUNT * SIZE)) == bytes(SIZE)
    assert again.read_file("config/topics.json") == TOPICS
    with pytest.raises(InvalidArgument, match="is not empty"):
        restore(objects, read_chain(objects).newest_part, again)


def test_a_restore_that_was_interrupted_is_begun_anew(
    objects: MemoryObjects, tmp_path: Path
) -> None:
    (tmp_path / "again").mkdir()
    again = RealDisk(tmp_path / "again")
    dying = FaultyObjects(objects)
    dying.before = fails_at(3, Killed)
    manifests = read_chain(objects).newest_part
    with pytest.raises(Killed):
        restore(dying, manifests, again)
    assert not again.exists(COMMIT_LOG_DIRECTORY)
    restore(objects, manifests, again)
    assert len(again.list(COMMIT_LOG_DIRECTORY)) == COUNT + 1


def test_forgetting_leaves_a_sound_chain_wherever_it_is_interrupted(objects: MemoryObjects) -> None:
    whole = dict(objects.held)
    for choose, is_marked in ((before, True), (at_or_after, False)):
        number = 0
        while True:
            number += 1
            dying = FaultyObjects()
            dying.real.held = dict(whole)
            dying.before = fails_at(number, Killed)
            try:
                doomed = choose(read_chain(dying.real).manifests, 2 * SIZE)
                forget(dying, doomed, is_marked=is_marked)
            except Killed:
                doomed = choose(read_chain(dying.real).manifests, 2 * SIZE)
                forget(dying.real, doomed, is_marked=is_marked)
            else:
                break
            finally:
                if number > 1:
                    chain = verified(dying.real)
                    assert not chain.findings
                    assert len(chain.manifests) == COUNT // 2
                    for at in range(0, COUNT * SIZE, SIZE):
                        assert was_forgotten(dying.real, at) == (is_marked and at < 2 * SIZE)
        assert number > 6


def test_a_tier_is_not_forgotten_as_a_whole_by_a_limit(objects: MemoryObjects) -> None:
    with pytest.raises(InvalidArgument, match=r"unset tier\.url"):
        before(read_chain(objects).manifests, COUNT * SIZE)


def test_age_removes_the_beginning_of_the_log_and_never_all(objects: MemoryObjects) -> None:
    manifests = [
        replace(each, written_ms=written_ms)
        for each, written_ms in zip(read_chain(objects).manifests, (1, 5, 2, 3), strict=True)
    ]
    assert older_than(manifests, 1) == []
    assert older_than(manifests, 4) == manifests[:1], "what follows a younger one stays"
    assert older_than(manifests, 99) == manifests[:3]
