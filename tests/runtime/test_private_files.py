"""Files of ours are readable by their owner only, whatever the umask says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.runtime.private_files import (
    Closing,
    close_to_others,
    make_private_folder,
    private_opener,
)

IS_ROOT = os.geteuid() == 0


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def test_what_is_made_is_private_and_what_is_there_stays(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path / "a" / "b" / "c")
    make_private_folder(tmp_path / "a" / "b")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3
    assert mode(tmp_path) == 0o755
    with open(tmp_path / "file", "wb", opener=private_opener):
        pass
    assert mode(tmp_path / "file") == 0o600
    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        make_private_folder(tmp_path / "file" / "a")


def test_a_folder_that_is_there_is_closed_and_that_is_enough(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    root.chmod(0o2775)
    assert close_to_others(root) == Closing(closed=(str(root),))
    assert mode(root) == 0o2700
    assert close_to_others(root) == close_to_others(tmp_path / "missing") == Closing()


def test_a_folder_of_all_users_stays_theirs(tmp_path: Path) -> None:
    """As /tmp, when it is named by mistake: to close it would stop half the machine."""
    root = tmp_path / "tmp"
    (root / "of-others").mkdir(parents=True)
    (root / "of-others").chmod(0o755)
    root.chmod(0o1777)
    assert close_to_others(root) == Closing(still_open=(str(root),))
    assert (mode(root), mode(root / "of-others")) == (0o1777, 0o755)


@pytest.mark.skipif(not IS_ROOT, reason="only root may give a folder to another user")
def test_in_the_root_of_a_volume_that_is_another_s_the_parts_are_closed(tmp_path: Path) -> None:
    """As Kubernetes mounts one: `fsGroup` owns the root, and its mode must stay, or the kubelet
    changes every file at the next mount."""
    root = tmp_path / "store"
    (root / "commitlog" / "deeper").mkdir(parents=True)
    (root / "abort").write_bytes(b"")
    (root / "lost+found").mkdir()
    (root / "away").symlink_to(tmp_path / "elsewhere")
    os.chown(root, 12_345, 12_345)
    os.chown(root / "lost+found", 12_345, 12_345)
    root.chmod(0o2775)
    assert close_to_others(root) == Closing(
        closed=(str(root / "abort"), str(root / "commitlog")),
        still_open=(str(root / "lost+found"),),
    )
    assert mode(root) == 0o2775
    assert (mode(root / "commitlog"), mode(root / "abort")) == (0o700, 0o600)
