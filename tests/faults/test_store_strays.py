"""Files that are missing, doubled, of a wrong length or foreign, in each folder of a store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aerobee.runtime.errors import InvalidArgument
from tests.faults.folders import (
    RUNS,
    Folder,
    check_folder,
    check_messages,
    make_folder,
)

Change = Callable[[Folder], object]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return make_folder(tmp_path_factory.mktemp("made") / "closed")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return make_folder(tmp_path_factory.mktemp("made") / "running", crashed=True)


@pytest.fixture(params=["closed", "crashed"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    made: Folder = request.getfixturevalue(request.param)
    return made.copy_to(tmp_path / "copy")


def files_in(folder: Folder, name: str) -> list[Path]:
    return sorted(path for path in folder.path(name).rglob("*") if path.is_file())


def change(name: str, action: Callable[[Path, list[Path]], object]) -> Change:
    """Do something to a folder and its files."""

    def apply(folder: Folder) -> None:
        action(folder.path(name), files_in(folder, name))

    return apply


def cut(path: Path, by: int = 1) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


# ------------------------------------------------------------------------------ harmless

HARMLESS: dict[str, Change] = {
    "checkpoint missing": lambda folder: folder.path("checkpoint").unlink(),
    "checkpoint empty": lambda folder: folder.path("checkpoint").write_bytes(b""),
    "checkpoint short": lambda folder: cut(folder.path("checkpoint"), 4_060),
    "checkpoint long": lambda folder: grow(folder.path("checkpoint")),
    "checkpoint of zeros": lambda folder: folder.path("checkpoint").write_bytes(bytes(4_096)),
    "lock missing": lambda folder: folder.path("lock").unlink(missing_ok=True),
    "abort.bak of Apache's": lambda folder: folder.path("abort.bak").write_bytes(b""),
    "a foreign file in the root": lambda folder: folder.path("notes.txt").write_text("mine"),
    "a foreign folder in the root": lambda folder: folder.path("backup").mkdir(),
    "Apache's timer files in the root": lambda folder: (
        folder.path("timerwheel").write_bytes(bytes(64)),
        folder.path("timerlog").mkdir(),  # type: ignore[func-returns-value]
    ),
    "a folder in the log": lambda folder: folder.path("commitlog/old").mkdir(),
    "an empty last segment": lambda folder: folder.path(f"commitlog/{40_960:020d}").touch(),
    "all queues missing": lambda folder: shutil.rmtree(folder.path("consumequeue")),
    "a queue missing": lambda folder: shutil.rmtree(folder.path("consumequeue/Orders/1")),
    "a queue file missing": change("consumequeue/Orders/1", lambda _, files: files[0].unlink()),
    "a queue file short": change("consumequeue/Orders/1", lambda _, files: cut(files[0])),
    "a queue file long": change("consumequeue/Orders/1", lambda _, files: grow(files[-1])),
    "a queue file doubled": change(
        "consumequeue/Orders/1",
        lambda _, files: shutil.copy(files[0], files[0].with_name(f"{files[0].name}.copy")),
    ),
    "a queue file under another's name": change(
        "consumequeue/Orders/1", lambda _, files: shutil.copy(files[0], files[-1])
    ),
    "a file beside the topics": change(
        "consumequeue", lambda path, _: (path / "notes.txt").write_text("mine")
    ),
    "a file beside the queues": change(
        "consumequeue/Orders", lambda path, _: (path / "notes.txt").write_text("mine")
    ),
    "a folder that is no queue": change(
        "consumequeue/Orders", lambda path, _: (path / "x").mkdir()
    ),
    "a queue of a topic nobody knows": change(
        "consumequeue", lambda path, _: shutil.copytree(path / "Orders/0", path / "Gone/0")
    ),
    "the whole index missing": lambda folder: shutil.rmtree(folder.path("index")),
    "an index file missing": change("index", lambda _, files: files[0].unlink()),
    "the newest index file missing": change("index", lambda _, files: files[-1].unlink()),
    "an index file short": change("index", lambda _, files: cut(files[-1])),
    "an index file long": change("index", lambda _, files: grow(files[0])),
    "an index file empty": change("index", lambda _, files: files[-1].write_bytes(b"")),
    "an index file of zeros": change(
        "index", lambda _, files: files[-1].write_bytes(bytes(files[-1].stat().st_size))
    ),
    "an index file doubled": change(
        "index", lambda path, files: shutil.copy(files[0], path / f"{int(files[0].name) + 1:017d}")
    ),
    "a foreign file in the index": change(
        "index", lambda path, _: (path / "notes.txt").write_text("mine")
    ),
    "a foreign folder in the index": change("index", lambda path, _: (path / "old").mkdir()),
    "a table's file missing": lambda folder: folder.path("config/topics.json").unlink(),
    "a table's backup missing": lambda folder: folder.path("config/topics.json.bak").unlink(),
    "a table's file empty": lambda folder: folder.path("config/topics.json").write_bytes(b""),
    "a table's file of zeros": lambda folder: folder.path("config/consumerOffset.json").write_bytes(
        bytes(300)
    ),
    "a half-written temporary file": lambda folder: folder.path(
        "config/consumerOffset.json.tmp"
    ).write_bytes(b'{"offsetTa'),
    "a table of Apache's that is not used": lambda folder: folder.path(
        "config/delayOffset.json"
    ).write_text("{}"),
    "a foreign file beside the tables": lambda folder: folder.path("config/notes").write_text("x"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", HARMLESS)
def test_what_costs_nothing(folder: Folder, name: str) -> None:
    """Every message is there, and the folder is in order again at the next start."""
    HARMLESS[name](folder)
    opened = folder.open()
    check_messages(opened)
    opened.store.close()
    again = folder.open()
    assert again.store.recovery.clean
    assert again.this_run.run_number > RUNS
    if "table" not in name or "temporary" in name:
        check_folder(again)
    again.store.close()


# ------------------------------------------------------------------------------ refused

REFUSED: dict[str, tuple[Change, str]] = {
    "a segment missing": (
        change("commitlog", lambda _, files: files[2].unlink()),
        "the log has a hole between commitlog/00000000000000004096",
    ),
    "a segment short": (
        change("commitlog", lambda _, files: cut(files[1])),
        "commitlog/00000000000000004096 has 4095 bytes, not 4096",
    ),
    "a segment long": (
        change("commitlog", lambda _, files: grow(files[-1])),
        "has 4097 bytes, not 4096: open the store with the segment size that it was written with",
    ),
    "a segment doubled": (
        change("commitlog", lambda path, files: shutil.copy(files[0], path / "copy of 0")),
        "commitlog/copy of 0 does not belong there: move it away",
    ),
    "a segment's copy with an offset inside another": (
        change("commitlog", lambda path, files: shutil.copy(files[0], path / f"{100:020d}")),
        "the log has a hole between commitlog/00000000000000000000",
    ),
    "a foreign file in the log": (
        change("commitlog", lambda path, _: (path / "notes.txt").write_text("mine")),
        "commitlog/notes.txt does not belong there: move it away",
    ),
    "the whole log missing": (
        lambda folder: shutil.rmtree(folder.path("commitlog")),
        "the folder commitlog is empty, but the checkpoint knows of",
    ),
    "a table unreadable with its backup": (
        lambda folder: [
            folder.path(f"config/consumerOffset.json{suffix}").write_text("{")
            for suffix in ("", ".bak")
        ],
        "repair the file, or remove it and its backup",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_in_one_sentence_and_left_as_it_is(folder: Folder, name: str) -> None:
    damage, words = REFUSED[name]
    damage(folder)
    before = folder.files()
    with pytest.raises(InvalidArgument) as refusal:
        folder.open()
    assert words in str(refusal.value)
    after = folder.files()
    for path in before:
        if path.startswith(("commitlog", "config/consumer")):
            assert after[path] == before[path]


def test_a_missing_last_segment_is_noticed(closed: Folder, tmp_path: Path) -> None:
    """The checkpoint knows how far the log reached."""
    folder = closed.copy_to(tmp_path / "copy")
    files_in(folder, "commitlog")[-1].unlink()
    with pytest.raises(InvalidArgument, match="the log was whole up to"):
        folder.open()


def test_tables_that_are_gone_begin_with_defaults_and_the_messages_stay(
    folder: Folder,
) -> None:
    """As if the operator had removed them: topics come again from the nameserver, groups begin at
    their start policy."""
    shutil.rmtree(folder.path("config"))
    opened = folder.open()
    check_messages(opened)
    assert opened.topics.get("Orders") is None
    assert opened.offsets.query("billing", "Orders", 0) is None
    opened.store.close()
