"""A separate ext4 file system in a file, for what a real kernel does when a disk fails."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

# _IOR('X', 125, u32): every later operation of the file system returns EIO, and its journal's
# memory is lost.
FS_IOC_SHUTDOWN = 0x8004587D
SHUTDOWN_WITHOUT_JOURNAL = 2
# _IOWR('X', 119, int), _IOWR('X', 120, int): writers and syncs wait, without an error.
FIFREEZE = 0xC0045877
FITHAW = 0xC0045878


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in argv], capture_output=True, text=True)


class LoopDisk:
    """An ext4 file system in a file."""

    def __init__(self, image: Path, folder: Path, size_bytes: int) -> None:
        if not sys.platform.startswith("linux") or os.geteuid() != 0:
            pytest.skip("a file system can be mounted by root on Linux only")
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("mkfs.ext4 is not installed")
        self.folder = folder
        self.store = folder / "store"
        self.image = image
        with image.open("wb") as file:
            file.truncate(size_bytes)
        folder.mkdir()
        made = run("mkfs.ext4", "-q", image)
        assert made.returncode == 0, made.stderr
        self.mount()

    def mount(self) -> None:
        done = run("mount", "-o", "loop,errors=remount-ro", self.image, self.folder)
        if done.returncode:
            pytest.skip(f"this machine forbids mounting a loop device: {done.stderr.strip()}")

    def unmount(self) -> None:
        if os.path.ismount(self.folder):
            done = run("umount", self.folder)
            assert done.returncode == 0, done.stderr

    def remount(self) -> None:
        """As after a repair: the journal is replayed, errors are cleared."""
        self.unmount()
        run("e2fsck", "-fy", self.image)
        self.mount()

    def shut_down(self) -> None:
        """The disk disappears instantly."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", SHUTDOWN_WITHOUT_JOURNAL))
        except OSError as error:
            pytest.skip(f"this kernel cannot shut a file system down: {error}")
        finally:
            os.close(descriptor)

    def freeze(self) -> None:
        """Writes do not return before `thaw`; not even a kill ends them."""
        self._control(FIFREEZE)

    def thaw(self) -> None:
        self._control(FITHAW)

    def _control(self, request: int) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, request, struct.pack("i", 0))
        except OSError as error:
            pytest.skip(f"this kernel cannot freeze a file system: {error}")
        finally:
            os.close(descriptor)

    def turn_read_only(self) -> None:
        """What ext4 does on its own when it finds an internal error."""
        device = Path(run("findmnt", "-no", "SOURCE", self.folder).stdout.strip()).name
        trigger = Path("/sys/fs/ext4") / device / "trigger_fs_error"
        if not trigger.exists():
            pytest.skip(f"this kernel has no {trigger}")
        trigger.write_text("a test")
