"""The file of Java's classes: it makes a start faster where it can, and is never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aerobee.offset_audit.run.class_archive import FOLDER, SUFFIX, ClassArchive, class_archive
from aerobee.offset_audit.run.exit_codes import NotReady
from aerobee.offset_audit.run.java import require_java

USES = "-XX:SharedArchiveFile"
CAN_MAKE = "-XX:+RecordDynamicDumpInfo"


@pytest.fixture
def java() -> Path:
    try:
        return require_java()
    except NotReady as error:
        pytest.skip(str(error))


def archive_in(folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    found = class_archive(java)
    assert found is not None
    return found


def options_of(archive: ClassArchive) -> str:
    return " ".join(archive.java_options())


def test_it_stands_in_the_users_cache_folder(
    tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_in(tmp_path, java, monkeypatch)
    assert archive.folder == tmp_path / FOLDER
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    at_home = class_archive(java)
    assert at_home is not None
    assert at_home == ClassArchive(tmp_path / "home" / ".cache" / FOLDER, archive.key)
    assert not list(tmp_path.iterdir()), "asking alone makes nothing"


def test_where_nothing_can_be_written_java_is_told_nothing(
    tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CAN_MAKE in options_of(archive_in(tmp_path, java, monkeypatch))
    file = tmp_path / "file"
    file.touch()
    archive = archive_in(file, java, monkeypatch)
    assert archive.java_options() == ()
    archive.make(gateway=None)  # fails before it asks any JVM, and says nothing


@pytest.mark.parametrize("folder", ["a:b", 'a"b', "a%b"])
def test_a_folder_that_java_would_misread_is_not_used(
    folder: str, tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / folder))
    assert class_archive(java) is None


def test_a_file_that_is_cut_or_that_others_may_write_is_not_used(
    tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_in(tmp_path, java, monkeypatch)
    archive.folder.mkdir(parents=True)
    path = archive.folder / f"{archive.key}-7{SUFFIX}"
    path.write_bytes(b"classes")
    path.chmod(0o666)
    assert USES not in options_of(archive)
    path.chmod(0o644)
    assert f"{USES}={path}" in options_of(archive)
    path.write_bytes(b"class")
    assert USES not in options_of(archive)


PROGRAM = """
from pathlib import Path
from aerobee.offset_audit.run.session import audit_session, keep_classes

with audit_session("local[1]", is_brief=True, knows_sources=False) as spark:
    assert spark.range(10).count() == 10
    pid = spark.sparkContext._gateway.proc.pid
    maps = [Path(f"/proc/{pid}/maps").read_text()]
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    maps += [Path(f"/proc/{child}/maps").read_text() for child in children]
    print(any(".jsa" in line and "aerobee" in line for line in "".join(maps).splitlines()))
    keep_classes(spark)
"""


def _starts_from_it(cache: Path) -> bool:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip() == "True"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_second_session_starts_from_what_the_first_left_and_a_damaged_file_is_passed_over(
    tmp_path: Path, java: Path
) -> None:
    assert not _starts_from_it(tmp_path)
    (made,) = (tmp_path / FOLDER).iterdir()
    assert made.suffix == SUFFIX
    assert _starts_from_it(tmp_path)
    content = bytearray(made.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 8] = b"damaged!"
    made.chmod(0o600)
    made.write_bytes(content)
    assert not _starts_from_it(tmp_path)
