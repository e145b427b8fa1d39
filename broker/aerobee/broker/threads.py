"""The broker's pools of threads that wait for the disk."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threads:
    """Where works wait for the disk: small files never after a reader that catches up."""

    reads: Executor
    files: Executor
