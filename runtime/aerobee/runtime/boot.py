"""Identifies the current boot of the machine.

A process that finds another boot id than the one it recorded knows that anything that was only in
the page cache may be gone.
"""

from __future__ import annotations

from pathlib import Path

BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def boot_id(path: Path = BOOT_ID_PATH) -> str:
    """Random for each boot of the kernel; empty if the kernel does not provide it."""
    try:
        return path.read_text("ascii").strip()
    except OSError:
        return ""
