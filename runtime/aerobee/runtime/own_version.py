"""The version of this installation, which clients tell brokers for display."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _own_version() -> str:
    """Empty if it is not installed as a distribution."""
    try:
        return version("aerobee")
    except PackageNotFoundError:
        return ""


# Reading it is file input, which must not happen on a loop.
OWN_VERSION: Final = _own_version()
