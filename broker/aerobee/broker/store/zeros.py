"""Bytes that were never written."""

from __future__ import annotations

_ZEROS = bytes(1 << 20)


def used_size(data: bytes) -> int:
    """How many bytes remain of `data` without the zeros at its end."""
    if len(data) <= len(_ZEROS) and data == _ZEROS[: len(data)]:  # compares at memory speed
        return 0
    return len(data.rstrip(b"\0"))
