"""Start a child process that ends with this one and does not see the terminal's Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from aerobee.cli.local_cluster import tied
from aerobee.runtime.private_files import private_opener

LOG_BYTES_MAX = 16 * 1024 * 1024


async def spawn_tied(
    argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Run `argv` (an absolute path first) with its output appended to `log`.

    It gets a session of its own, so that Ctrl-C reaches only this process, which then ends its
    children in the order it wants; `environment` is added to this process's own.
    """
    with opened_log(log) as output:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            tied.__file__,
            str(os.getpid()),
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )


def opened_log(log: Path) -> IO[bytes]:
    """To append; a log that has grown large is kept once, as `.1`."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
    return open(log, "ab", opener=private_opener)
