"""One supervised child process: started, watched, restarted when it dies, stopped.

Owns: the process and its log file. However this process ends, its children end with it, and they
do not see the terminal's Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from aerobee.cli.failures import Failure
from aerobee.cli.local_cluster import tied
from aerobee.runtime.clock import Clock
from aerobee.runtime.private_files import private_opener
from aerobee.runtime.retry import Backoff
from aerobee.runtime.supervise import ExitCode

LOG_TAIL_BYTES = 2_000
LOG_BYTES_MAX = 16 * 1024 * 1024
STABLE_AFTER_S = 30.0
"""A child that ran this long is forgiven its earlier deaths."""
RESTART_BACKOFF = Backoff(base_ms=200, max_ms=30_000, jitter=0.1)
FIRST_STARTS_MAX = 6
"""Deaths in a row before the cluster has served once; then the start has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What to run. `argv[0]` is an absolute path."""

    name: str
    argv: tuple[str, ...]
    log: Path
    stop_timeout_s: float
    restart_backoff: Backoff = RESTART_BACKOFF
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's own environment."""
    folder: Path | None = None
    """Where it runs; None: where this process does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnded:
    """Told to the supervisor's owner when a child dies unasked and will be started again."""

    name: str
    how: str
    """For a person: `ended with signal SIGKILL`, `was stopped from outside`."""
    restart_delay_s: float
    in_a_row: int = 1
    """Deaths, each before it ran STABLE_AFTER_S."""

    def sentence(self) -> str:
        """What happened and what comes, for the person at the terminal."""
        times = f" ({self.in_a_row} times in a row)" if self.in_a_row > 1 else ""
        return f"{self.name} {self.how}{times}; starting it again in {self.restart_delay_s:.1f} s"


class Child:
    """A process that is to run until it is told to stop."""

    def __init__(self, spec: ChildSpec, *, clock: Clock, chance: random.Random) -> None:
        self.spec = spec
        self.restarts = 0
        self._clock = clock
        self._chance = chance
        self._process: asyncio.subprocess.Process | None = None
        self._served = False

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def served(self) -> None:
        """Told when it was seen serving: from now on it is started again after every death."""
        self._served = True

    async def supervise(
        self,
        *,
        on_started: Callable[[Child], None],
        on_ended: Callable[[ChildEnded], None],
    ) -> None:
        """Run the child, again after every death, until cancelled; does not stop it then.

        The pauses grow while it dies before it ran STABLE_AFTER_S. Once it has served it is never
        given up: whatever ails it, the other processes go on meanwhile.

        Raises:
            Failure: the first start failed: it refused, with its own exit code, or it died
                FIRST_STARTS_MAX times.
        """
        failures = 0
        while True:
            started_s = self._clock.monotonic_s()
            process = self._process = await spawn_tied(
                self.spec.argv,
                log=self.spec.log,
                environment=self.spec.environment,
                folder=self.spec.folder,
            )
            on_started(self)
            return_code = await process.wait()
            if self._clock.monotonic_s() - started_s >= STABLE_AFTER_S:
                failures = 0
            failures += 1
            if not self._served:
                self._check_start(return_code, failures)
            delay_s = self.spec.restart_backoff.delay_s(failures, self._chance)
            on_ended(
                ChildEnded(
                    name=self.name,
                    how=self._how_it_ended(return_code),
                    restart_delay_s=delay_s,
                    in_a_row=failures,
                )
            )
            await asyncio.sleep(delay_s)
            self.restarts += 1

    def _check_start(self, return_code: int, failures: int) -> None:
        if return_code in (ExitCode.REFUSED, ExitCode.USAGE):
            raise Failure(f"{self.name} did not start: {self._last_words()}", exit_code=return_code)
        if failures >= FIRST_STARTS_MAX:
            raise Failure(
                f"{self.name} did not start: it ended {failures} times in a row, last with "
                f"{_describe(return_code)}: {self._last_words()} (log: {self.spec.log})"
            )

    def _how_it_ended(self, return_code: int) -> str:
        if return_code == 0:
            return "was stopped from outside (exit code 0)"
        if return_code < 0:
            return f"ended with {_describe(return_code)}"
        # A process that ends by itself says why.
        return f"ended with {_describe(return_code)}: {self._last_words()}"

    async def stop(self) -> bool:
        """Ask it to end and wait; False if it did not in its time and was killed."""
        process = self._process
        if process is None or process.returncode is not None:
            return True
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self.spec.stop_timeout_s):
                await process.wait()
        except TimeoutError:
            self.kill()
            await process.wait()
            return False
        finally:
            self.kill()
        return True

    def kill(self) -> None:
        """End it at once."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    def _last_words(self) -> str:
        """The last line of the child's log: services end with one sentence."""
        try:
            with self.spec.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - LOG_TAIL_BYTES))
                lines = log.read().decode("utf-8", "replace").splitlines()
        except OSError:
            lines = []
        said = next((line for line in reversed(lines) if line.strip()), "no output")
        return re.sub(r"^aerobee:? ", "", said.strip()).rstrip(".")


def _describe(return_code: int) -> str:
    if return_code < 0:
        return f"signal {signal.Signals(-return_code).name}"
    return f"exit code {return_code}"


async def spawn_tied(
    argv: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> asyncio.subprocess.Process:
    """Run `argv` (an absolute path first) with its output appended to `log`.

    It gets a session of its own, so that Ctrl-C reaches only this process, which then ends its
    children in the order it wants; `environment` is added to this process's own. It runs in
    `folder`, or where this process does.
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
            cwd=folder,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )


def opened_log(log: Path) -> IO[bytes]:
    """To append; a log that has grown large is kept once, as `.1`."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
    return open(log, "ab", opener=private_opener)
