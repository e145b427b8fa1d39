"""One suite for all object stores: in memory, in a folder, and through obstore."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from obstore.store import LocalStore, MemoryStore

from aerobee.broker.tier.cloud_objects import CloudObjects
from aerobee.broker.tier.places import open_tier
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import InvalidArgument, NotMaster, TierUnavailable
from aerobee.store.tier.folder_objects import FolderObjects
from aerobee.store.tier.objects import CHUNK_BYTES, ObjectInfo, ObjectMissing, Objects, read_whole
from tests.support.faulty_objects import MemoryObjects

DAY_S = 24 * 3_600


@pytest.fixture(params=["memory", "folder", "obstore memory", "obstore folder"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    (tmp_path / "root").mkdir()
    make: dict[str, Callable[[], Objects]] = {
        "memory": MemoryObjects,
        "folder": lambda: FolderObjects(tmp_path / "root", "c/b", SystemClock()),
        "obstore memory": lambda: CloudObjects(MemoryStore(), "memory"),
        "obstore folder": lambda: CloudObjects(LocalStore(tmp_path / "root"), "folder"),
    }
    return make[request.param]()


def test_what_was_put_is_read_and_a_later_put_replaces_it(objects: Objects) -> None:
    objects.put("a/b/c", [b"one", b"", b"two"])
    assert read_whole(objects, "a/b/c") == b"onetwo"
    objects.put("a/b/c", [b"three"])
    assert read_whole(objects, "a/b/c") == b"three"


def test_a_large_object_is_read_in_pieces(objects: Objects) -> None:
    chunks = [bytes([number]) * CHUNK_BYTES for number in range(5)]
    objects.put("large", iter([*chunks, b"end"]))
    assert read_whole(objects, "large") == b"".join(chunks) + b"end"
    assert objects.read("large", 2 * CHUNK_BYTES - 1, 2) == b"\x01\x02"


def test_reads_end_with_the_object(objects: Objects) -> None:
    objects.put("a", [b"abc"])
    assert objects.read("a", 1, 99) == b"bc"
    assert objects.read("a", 3, 1) == b""
    assert objects.read("a", 9, 1) == b""
    objects.put("empty", [])
    assert objects.read("empty", 0, 9) == b""


def test_only_the_first_create_counts(objects: Objects) -> None:
    assert objects.create("x/y", b"first")
    assert not objects.create("x/y", b"second")
    assert read_whole(objects, "x/y") == b"first"
    objects.remove("x/y")
    assert objects.create("x/y", b"third")


def test_what_is_not_there_is_said_to_be_missing(objects: Objects) -> None:
    with pytest.raises(ObjectMissing):
        objects.read("x", 0, 1)
    objects.put("x", [b"1"])
    objects.remove("x")
    objects.remove("x")
    with pytest.raises(ObjectMissing):
        objects.read("x", 0, 1)


def test_a_list_has_what_is_below_a_prefix(objects: Objects) -> None:
    assert objects.list("a/") == []
    for name in ("a/2", "a/1/z", "ab/3", "b/4"):
        objects.put(name, [name.encode()])
    assert objects.list("a/") == [ObjectInfo("a/1/z", 5), ObjectInfo("a/2", 3)]


def test_a_put_that_gives_up_leaves_nothing_and_raises_why(objects: Objects) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x" * CHUNK_BYTES
        raise NotMaster("the term has ended")

    with pytest.raises(NotMaster):
        objects.put("half", chunks())
    with pytest.raises(ObjectMissing):
        objects.read("half", 0, 1)


# -------------------------------------------------------------------------------- folders


def test_a_folder_that_is_not_mounted_is_not_an_empty_tier(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path / "mount", "c/b", SystemClock())
    for call in (
        lambda: objects.read("x", 0, 1),
        lambda: objects.list("a/"),
        lambda: objects.put("x", [b"1"]),
        lambda: objects.create("x", b"1"),
    ):
        with pytest.raises(TierUnavailable, match="check the folder"):
            call()
    assert not (tmp_path / "mount").exists()


def test_what_interrupted_puts_left_goes_after_a_day(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path, "c/b", SystemClock())
    incoming = tmp_path / "c" / "b" / ".incoming"
    incoming.mkdir(parents=True)
    now_s = SystemClock().now_ms() / 1_000
    for name, age_s in (("old", DAY_S + 60), ("new", 60)):
        (incoming / name).write_bytes(b"half")
        os.utime(incoming / name, (now_s - age_s, now_s - age_s))
    objects.put("x", [b"1"])
    assert [path.name for path in incoming.iterdir()] == ["new"]


# -------------------------------------------------------------------------------- urls


def test_a_url_leads_to_the_place_of_one_broker_group(tmp_path: Path) -> None:
    def place(url: str) -> str:
        return str(open_tier(url, cluster="c", broker_name="b", clock=SystemClock()))

    assert place(f"file://{tmp_path}") == f"{tmp_path}/c/b"
    assert place("s3://bucket/some/path/") == "s3://bucket/some/path/c/b"
    with pytest.raises(InvalidArgument, match="names no bucket"):
        place("s3:///path")


def test_without_obstore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(InvalidArgument, match=r"pip install 'aerobee\[tier\]'"):
        CloudObjects.at("s3://bucket", "c/b")


def test_a_store_that_does_not_answer_leaves_open_what_happened() -> None:
    from obstore.store import S3Store

    objects = CloudObjects(
        S3Store(
            "bucket",
            endpoint="http://127.0.0.1:9",
            access_key_id="x",
            secret_access_key="x",
            client_options={"allow_http": True, "timeout": "1s"},
            retry_config={"max_retries": 0},
        ),
        "s3",
    )
    for call in (
        lambda: objects.read("x", 0, 1),
        lambda: objects.list("a/"),
        lambda: objects.put("x", [b"1"]),
        lambda: objects.create("x", b"1"),
        lambda: objects.remove("x"),
    ):
        with pytest.raises(TierUnavailable, match="check the URL"):
            call()
