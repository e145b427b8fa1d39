"""Files and folders that only their owner can read, whatever the umask allows.

On a machine with several users, message bodies, offsets and logs belong to one of them only.
"""

from __future__ import annotations

import contextlib
import os

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_OTHERS = 0o077


def make_private_folder(path: str | os.PathLike[str]) -> None:
    """The folder and its missing parents; those that are there stay as they are. Raises OSError."""
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


def close_to_others(folder: str | os.PathLike[str]) -> list[str]:
    """Take the rights of group and others from a folder that is there, and so from all below it.

    A folder of another user's, as the root of a mounted volume, stays as it is; what lies directly
    in it is closed instead. Returns what stays open, because it is not ours. Costs no walk: deeper
    files are out of reach once the folder above is closed. A folder that is missing is none.

    Raises OSError.
    """
    try:
        if _close(folder):
            return []
        with os.scandir(folder) as entries:
            paths = [entry.path for entry in entries if not entry.is_symlink()]
    except FileNotFoundError:
        return []
    still_open = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if not _close(path):
                still_open.append(path)
    return sorted(still_open)


def _close(path: str | os.PathLike[str]) -> bool:
    """False: others may reach it, and it is not ours to change."""
    status = os.stat(path)
    mode = status.st_mode & 0o7777
    if not mode & _OTHERS:
        return True
    if status.st_uid != os.geteuid():
        return False
    os.chmod(path, mode & ~_OTHERS)
    return True
