"""Files and folders that only their owner can read, whatever the umask allows.

On a machine with several users, message bodies, offsets and logs belong to only one of them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_OTHERS = 0o077


def make_private_folder(path: str | os.PathLike[str]) -> None:
    """The folder and its missing parents; existing ones stay as they are. Raises OSError."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        parent = os.path.dirname(os.path.abspath(path))
        make_private_folder(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, FOLDER_MODE)


def private_opener(path: str, flags: int) -> int:
    """For `open(..., opener=private_opener)`: a file that it creates is private."""
    return os.open(path, flags, FILE_MODE)


@dataclass(frozen=True, slots=True)
class Closing:
    """What `close_to_others` found open."""

    closed: tuple[str, ...] = ()
    still_open: tuple[str, ...] = ()
    """Folders that are not ours to change, or are shared."""


def close_to_others(folder: str | os.PathLike[str]) -> Closing:
    """Take the rights of group and others from an existing folder, and thereby from everything
    below it.

    A folder owned by another user, such as the root of a mounted volume, stays as it is; its direct
    contents are closed instead. There is no recursive walk: deeper files are out of reach once the
    folder above is closed. A folder that all users may write to, such as /tmp, stays open with all
    its contents. A missing folder is ignored.

    Raises OSError.
    """
    try:
        if os.stat(folder).st_mode & stat.S_ISVTX:
            return Closing(still_open=(os.fspath(folder),))
        match _close(folder):
            case _State.CLOSED:
                return Closing((os.fspath(folder),))
            case _State.PRIVATE:
                return Closing()
        with os.scandir(folder) as entries:
            paths = sorted(entry.path for entry in entries if not entry.is_symlink())
    except FileNotFoundError:
        return Closing()
    states: dict[str, _State] = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            states[path] = _close(path)
    return Closing(
        tuple(path for path, state in states.items() if state is _State.CLOSED),
        tuple(path for path, state in states.items() if state is _State.ANOTHERS),
    )


def all_users_can_read(file: str | os.PathLike[str]) -> bool:
    """Whether its mode and those of the folders above let everyone read it; False if it does not
    exist."""
    try:
        path = Path(file).resolve(strict=True)
        if not path.stat().st_mode & stat.S_IROTH:
            return False
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)
    except OSError:
        return False


class _State(Enum):
    PRIVATE = auto()
    """It was already closed."""
    CLOSED = auto()
    ANOTHERS = auto()
    """Others may reach it, and it is not ours to change."""


def _close(path: str | os.PathLike[str]) -> _State:
    status = os.stat(path)
    mode = status.st_mode & 0o7777
    if not mode & _OTHERS:
        return _State.PRIVATE
    if status.st_uid != os.geteuid():
        return _State.ANOTHERS
    os.chmod(path, mode & ~_OTHERS)
    return _State.CLOSED
