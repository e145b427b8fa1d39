"""Which start of the machine this is.

A process that finds another boot than the one it noted before knows that everything which was only
in the page cache may be gone.
"""

from __future__ import annotations

from pathlib import Path

BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def boot_id(path: Path = BOOT_ID_PATH) -> str:
    """Random per start of the kernel; empty where the kernel does not tell."""
    try:
        return path.read_text("ascii").strip()
    except OSError:
        return ""
